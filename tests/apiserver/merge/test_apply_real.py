"""Field ownership, server-side apply and strategic merge against a real kube-apiserver, on random sequences of writes.

Objects, managedFields without their times, refusals and conflicts must be equal after every step (see `applycompare`).
"""

from __future__ import annotations

import json
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.apiserver import applyscenarios, applyworld, kindsamples
from tests.apiserver.applycompare import NOW, compare, manager_for, manager_of, owners
from tests.apiserver.applyworld import Step, World
from tests.apiserver.realserver import RealServer

from bedplate.apiserver import facts
from bedplate.core import errors

pytestmark = pytest.mark.real

FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=2000)
DATA = pathlib.Path(__file__).parents[1] / "data"
KINDS = {world.kind: world for world in applyworld.WORLDS}


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    real = RealServer()
    try:
        real.__enter__()
    except errors.BedplateError as err:
        pytest.skip(f"no real kube-apiserver: {err}")
    try:
        create(real, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", applyworld.WIDGET_CRD)
        until_served(real)
        yield real
    finally:
        real.__exit__()


def create(server: RealServer, path: str, body: dict[str, Any]) -> None:
    code, answer = server.call("POST", path, body)
    assert code == 201, answer


def until_served(server: RealServer) -> None:
    """A new kind is served a moment after its definition, and its type is known to apply a moment later still."""
    probe = {"apiVersion": applyworld.WIDGET.api_version, "kind": "Widget", "metadata": {"name": "probe"}, "spec": {}}
    for _ in range(600):
        code, _answer = server.call(
            "PATCH", f"{applyworld.WIDGET.path}/probe", probe, content="apply-patch+yaml", fieldManager="probe"
        )
        if code in (200, 201):
            return
        time.sleep(0.1)
    raise AssertionError("the custom kind was never served")


def test_named_scenarios_are_as_on_the_real_server(server: RealServer) -> None:
    recorded = {
        name: {"kind": world.kind, "calls": compare(server, world, sequence, may_be_invalid=False)}
        for name, (world, sequence) in applyscenarios.SCENARIOS.items()
    }
    record("apply.json", recorded)


def test_new_objects_of_every_kind_are_owned_as_on_the_real_server(server: RealServer) -> None:
    recorded = {}
    for resource in facts.load().resources():
        sample = kindsamples.SAMPLES.get(resource.key)
        if sample is None:
            continue
        metadata = {"name": "sample", "labels": {"app": "x"}, "annotations": {"a": "b"}, **sample.get("metadata", {})}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **sample, "metadata": metadata}
        prefix = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.api_version}"
        path = f"{prefix}/namespaces/default" if resource.namespaced else prefix
        code, new = server.call("POST", f"{path}/{resource.resource}", body, dryRun="All", fieldManager="me")
        assert code == 201, new
        theirs = new["metadata"].pop("managedFields")
        new = kindsamples.without_filled_in(resource.resource, new)
        mine = manager_of(resource).on_create(new, "me", theirs[0]["time"])
        assert json.dumps(by_key(mine)) == json.dumps(by_key(theirs))
        recorded["/".join(resource.key)] = {"new": new, "owners": theirs}
    assert len(recorded) == len(kindsamples.SAMPLES)
    record("kinds.json", recorded)


def test_scaling_is_owned_as_on_the_real_server(server: RealServer) -> None:
    world = applyworld.DEPLOYMENT
    fields = manager_for(world)
    body = {"apiVersion": world.api_version, "kind": world.kind, "metadata": {"name": "scaled"}, **world.base}
    code, live = server.call("POST", world.path, body, fieldManager="me")
    assert code == 201, live
    patch = {"spec": {"replicas": 3}}
    path = f"{world.path}/scaled"
    code, answer = server.call("PATCH", f"{path}/scale", patch, content="merge-patch+json", fieldManager="scaler")
    assert code == 200, answer
    _, scaled = server.call("GET", path)
    mine = fields.on_update(live, scaled, "scaler", NOW, "scale")
    assert owners(mine) == owners(scaled["metadata"]["managedFields"])


def by_key(entries: list[Any] | None) -> list[Any]:
    """Entries with their own keys sorted; the order inside the sets counts."""
    return [sorted(entry.items()) for entry in entries or []]


def record(name: str, found: dict[str, Any]) -> None:
    """With BEDPLATE_RECORD=1 what was agreed on is written down for the tests that run without a server."""
    if os.environ.get("BEDPLATE_RECORD"):
        DATA.mkdir(exist_ok=True)
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items()]
        (DATA / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


@pytest.mark.parametrize("kind", KINDS)
def test_random_writes_are_owned_as_on_the_real_server(server: RealServer, kind: str) -> None:
    play(server, KINDS[kind], FEW)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_very_many_random_writes_are_owned_as_on_the_real_server(server: RealServer, kind: str) -> None:
    play(server, KINDS[kind], MANY)


def play(server: RealServer, world: World, how_many: settings) -> None:
    @how_many
    @given(sequence=applyworld.steps(world))
    def sequences(sequence: list[Step]) -> None:
        compare(server, world, sequence)

    sequences()
