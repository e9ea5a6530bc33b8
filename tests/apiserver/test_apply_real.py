"""Field ownership, server-side apply and strategic merge against a real kube-apiserver, on random sequences of writes.

Every step is carried out there and by our pure functions from the same live object. The real server also serves as the
one that defaults and normalises (by a dry run), since that is not what is tested here. Objects, managedFields without
their times, and conflicts must be equal.
"""

from __future__ import annotations

import copy
import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.apiserver import applyworld
from tests.apiserver.applyworld import Step, World
from tests.apiserver.realserver import RealServer

from bedplate.apiserver import apply, facts, managed, patches, strategic, typegraph
from bedplate.apiserver.status import StatusError
from bedplate.core import errors

pytestmark = pytest.mark.real

NOW = "2026-01-01T00:00:00Z"
FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
MANY = settings(FEW, max_examples=int(os.environ.get("BEDPLATE_SOAK_EXAMPLES", "1000")))

_names = (f"obj-{number}" for number in itertools.count())


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


def manager_for(world: World) -> managed.FieldManager:
    table = facts.load()
    if world.is_custom:
        node = typegraph.from_schema(applyworld.WIDGET_SCHEMA, table.object_meta, is_resource=True)
        group, resource = applyworld.GROUP, "widgets"
    else:
        name = table.type_name(world.api_version, world.kind)
        assert name is not None
        node = table.node(name)
        group, resource = world.api_version.rpartition("/")[0], world.path.rpartition("/")[2]
    reset = {
        sub: managed.reset_fields(group, resource, sub, has_status=world.kind != "ConfigMap") for sub in ("", "status")
    }
    return managed.FieldManager(
        node, api_version=world.api_version, kind=world.kind, is_custom=world.is_custom, reset=reset
    )


class Comparison:
    """One object on the real server, and what we say it should be after each step."""

    def __init__(self, server: RealServer, world: World, fields: managed.FieldManager) -> None:
        self.server, self.world, self.fields = server, world, fields
        self.name = next(_names)
        self.live: dict[str, Any] | None = None

    @property
    def path(self) -> str:
        return f"{self.world.path}/{self.name}"

    def take(self, step: Step) -> None:
        verb = step.verb.rpartition("-")[2]
        subresource = "status" if step.verb.startswith("status-") else ""
        if subresource and self.live is None:
            return
        body = self.complete(step.body) if verb in ("create", "apply") and not subresource else step.body
        getattr(self, f"_{verb}")(step, body, subresource)

    def complete(self, part: dict[str, Any]) -> dict[str, Any]:
        """A part made an object; the first one needs all that the kind demands."""
        body = {**copy.deepcopy(part), "apiVersion": self.world.api_version, "kind": self.world.kind}
        body["metadata"] = {**body.get("metadata", {}), "name": self.name, "namespace": "default"}
        if self.live is None:
            for key, value in self.world.base.items():
                body[key] = {**body.get(key, {}), **copy.deepcopy(value)}
        return body

    # --- verbs ----------------------------------------------------------------------------------------------------

    def _create(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        code, new = self.server.call("POST", self.world.path, body, dryRun="All", fieldManager="x")
        if code == 422:
            return
        assert code == 201, new
        mine = self.fields.on_create(self.decoded(new, body), step.manager, NOW)
        code, answer = self.server.call("POST", self.world.path, body, fieldManager=step.manager)
        assert code == 201, answer
        self.settle(answer, mine, None)

    def _put(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        if self.live is None:
            return
        self._update(step, patches.merge_patch(self.live, body), subresource, None)

    def _merge(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        if self.live is None:
            return
        self._update(step, patches.merge_patch(self.live, body), subresource, ("merge-patch+json", body))

    def _json(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        if self.live is None:
            return
        content, operations = "json-patch+json", body["operations"]
        try:
            mine = patches.json_patch(self.live, operations)
        except StatusError as err:
            code, answer = self.server.call("PATCH", self.path, operations, content=content, fieldManager=step.manager)
            assert (code, answer["message"]) == (err.code, err.message)
            return
        self._update(step, mine, subresource, (content, operations))

    def _strategic(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        if self.live is None:
            return
        content = "strategic-merge-patch+json"
        before = copy.deepcopy((self.live, body))
        try:
            mine = strategic.strategic_merge(self.live, body, self.fields.node)
        except StatusError as err:
            code, answer = self.server.call("PATCH", self.path, body, content=content, fieldManager=step.manager)
            assert (code, answer["message"]) == (err.code, err.message)
            return
        assert (self.live, body) == before
        self._update(step, mine, subresource, (content, body))

    def _update(self, step: Step, wanted: dict[str, Any], subresource: str, patch: tuple[str, Any] | None) -> None:
        assert self.live is not None
        path = self.path + (f"/{subresource}" if subresource else "")
        code, new = self.server.call("PUT", path, wanted, dryRun="All", fieldManager="x")
        if code != 200:
            return
        mine = self.fields.on_update(self.live, self.restored(new, wanted), step.manager, NOW, subresource)
        if patch is None:
            code, answer = self.server.call("PUT", path, wanted, fieldManager=step.manager)
        else:
            code, answer = self.server.call("PATCH", path, patch[1], content=patch[0], fieldManager=step.manager)
        assert code == 200, answer
        self.settle(answer, mine, new)

    def _apply(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        if subresource:
            body = {**body, "apiVersion": self.world.api_version, "kind": self.world.kind}
            body["metadata"] = {"name": self.name, "namespace": "default"}
        path = self.path + (f"/{subresource}" if subresource else "")
        before = copy.deepcopy((self.live, body))
        try:
            mine: dict[str, Any] | StatusError = apply.apply(
                self.fields, self.live, body, step.manager, force=step.force, time=NOW, subresource=subresource
            )
        except StatusError as err:
            mine = err
        assert (self.live, body) == before
        new = None
        if isinstance(mine, dict):
            if self.live is None:
                code, new = self.server.call("POST", self.world.path, mine, dryRun="All", fieldManager="x")
            else:
                code, new = self.server.call("PUT", path, mine, dryRun="All", fieldManager="x")
        query = {"fieldManager": step.manager, "force": str(step.force).lower()}
        code, answer = self.server.call("PATCH", path, body, content="apply-patch+yaml", **query)
        if isinstance(mine, StatusError):
            assert code == mine.code, answer
            assert causes(answer) == causes(mine.document())
            if len(causes(answer)) == 1:
                assert answer["message"] == mine.message
            return
        if code == 422:
            return
        assert code in (200, 201), (answer, mine)
        self.settle(answer, mine["metadata"].get("managedFields"), new)

    # --- comparison -----------------------------------------------------------------------------------------------

    def decoded(self, new: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        """The object of a dry run as it was before the server filled in what nobody asked for."""
        spec = {
            key: value
            for key, value in new.get("spec", {}).items()
            if key not in self.world.allocated or key in body["spec"]
        }
        metadata = {key: value for key, value in new["metadata"].items() if key != "managedFields"}
        return {**new, "metadata": metadata, **({"spec": spec} if "spec" in new else {})}

    def restored(self, new: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        """The object of a dry run with the owners that the request carried."""
        metadata = {key: value for key, value in new["metadata"].items() if key != "managedFields"}
        if "managedFields" in wanted["metadata"]:
            metadata["managedFields"] = wanted["metadata"]["managedFields"]
        return {**new, "metadata": metadata}

    def settle(self, real: dict[str, Any], mine: list[Any] | None, new: dict[str, Any] | None) -> None:
        assert owners(mine) == owners(real["metadata"].get("managedFields"))
        if new is not None:
            assert content(new) == content(real)
        self.live = real


def owners(entries: list[Any] | None) -> dict[Any, Any]:
    return {
        managed.identify(entry): {key: value for key, value in entry.items() if key != "time"}
        for entry in entries or []
    }


def content(obj: dict[str, Any]) -> dict[str, Any]:
    volatile = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
    allocated = ("clusterIP", "clusterIPs")
    spec = {key: value for key, value in obj.get("spec", {}).items() if key not in allocated}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in volatile}
    return {**obj, "metadata": metadata, "spec": spec}


def causes(status: dict[str, Any]) -> list[Any]:
    found = status.get("details", {}).get("causes", [])
    return sorted((cause["field"], cause["message"], cause["reason"]) for cause in found)


def compare(server: RealServer, world: World, sequence: list[Step]) -> None:
    comparison = Comparison(server, world, manager_for(world))
    for step in sequence:
        comparison.take(step)


@FEW
@given(sequence=applyworld.steps(applyworld.CONFIG_MAP))
def test_config_maps_are_owned_as_on_the_real_server(server: RealServer, sequence: list[Step]) -> None:
    compare(server, applyworld.CONFIG_MAP, sequence)


@FEW
@given(sequence=applyworld.steps(applyworld.DEPLOYMENT))
def test_deployments_are_owned_as_on_the_real_server(server: RealServer, sequence: list[Step]) -> None:
    compare(server, applyworld.DEPLOYMENT, sequence)


@FEW
@given(sequence=applyworld.steps(applyworld.SERVICE))
def test_services_are_owned_as_on_the_real_server(server: RealServer, sequence: list[Step]) -> None:
    compare(server, applyworld.SERVICE, sequence)


@FEW
@given(sequence=applyworld.steps(applyworld.WIDGET))
def test_custom_objects_are_owned_as_on_the_real_server(server: RealServer, sequence: list[Step]) -> None:
    compare(server, applyworld.WIDGET, sequence)
