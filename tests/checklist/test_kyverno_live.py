"""Kyverno's admission controller beside our own rules, and alone, with the policies that the permission manager makes.

A real kube-apiserver, and Kyverno as a process that it reaches by URL. Kyverno takes ten minutes and more to build, so
that `make setup` leaves it out: `bedplate binaries get kyverno` builds it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import programs, servers
from tests.operators.permissions import podtable
from tests.operators.permissions.podtable import Case
from tests.operators.permissions.test_admission_live import answer_to, compare, users_of_the_table
from tests.operators.permissions.worlds import World, world_on
from tests.waiting import until

from bedplate.api.permissions import LABEL_RELEASE
from bedplate.kube import Client, config
from bedplate.kube import errors as kube_errors
from bedplate.lab import binaries, versions
from bedplate.operators.permissions import live, manifests, policies, refusals
from bedplate.operators.permissions.decision import decide
from bedplate.program.webhookcertificates import CONFIGURATIONS, MUTATING_CONFIGURATIONS
from bench import kyverno

pytestmark = [pytest.mark.soak, pytest.mark.real, pytest.mark.external]
SPELT_OTHERWISE = frozenset({"path //home/john", "path /home//john", "path /home/./john/x"})
"""Paths of the user that Kyverno's patterns do not know as such: it refuses them, which is safe."""
SECOND_GROUP = "the second group"
"""A pod that chose one of the user's groups for itself gets the first one in its containers: Kyverno adds what a
container does not have, whatever its pod has."""
MUTATING, VALIDATING = "kyverno-resource-mutating-webhook-cfg", "kyverno-resource-validating-webhook-cfg"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """A server with Kyverno, once Kyverno has registered itself."""
    program = binaries.cached("kyverno")
    if program is None:
        pytest.skip("Kyverno is not built: too large for make setup (bedplate binaries get kyverno)")
    source, folder = programs.module(kyverno.MODULE, versions.KYVERNO), tmp_path_factory.mktemp("kyverno")
    with programs.own_server("real") as server:
        asyncio.run(_prepare(server, source))
        with kyverno.running(program, server.kubeconfig, servers.free_port(), folder) as log:
            asyncio.run(_registered(server, log))
            yield server


async def _prepare(server: servers.Server, source: Path) -> None:
    async with Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        await kyverno.prepare(client, source)


async def _registered(server: servers.Server, log: Path) -> None:
    async with Client(config.load(server.kubeconfig, environ={})) as client:

        async def is_there() -> bool:
            try:
                found = await client.get(MUTATING_CONFIGURATIONS, kyverno.REGISTERED)
            except kube_errors.NotFound:
                return False
            return bool(found["webhooks"])

        await until(is_there, "Kyverno is registered", describe=lambda: log.read_text()[-2000:])


@pytest.fixture
async def world(cluster: servers.Server) -> AsyncIterator[World]:
    async with world_on(cluster) as made:
        yield made


async def in_force(world: World, places: dict[str, str]) -> None:
    """Until Kyverno has taken up the policies of all users, and the API server asks it about pods."""

    async def is_ready() -> bool:
        found = (await world.client.list(live.CLUSTER_POLICIES)).items
        ours = [each for each in found if each["metadata"]["labels"].get(LABEL_RELEASE)]
        conditions = [(each.get("status") or {}).get("conditions") or [{}] for each in ours]
        return len(ours) >= len(places) and all(each[0].get("status") == "True" for each in conditions)

    async def asks() -> bool:
        for ref, name in ((MUTATING_CONFIGURATIONS, MUTATING), (CONFIGURATIONS, VALIDATING)):
            with contextlib.suppress(kube_errors.NotFound):
                if (await world.client.get(ref, name)).get("webhooks"):
                    continue
            return False
        return True

    await until(is_ready, "Kyverno has all policies")
    await until(asks, "Kyverno is asked")


async def without_our_rules(world: World) -> None:
    """Neither our webhook nor our policy is asked any more; Kyverno's are all that is left."""
    for ref, name in (
        (MUTATING_CONFIGURATIONS, manifests.MUTATING),
        (CONFIGURATIONS, manifests.VALIDATING),
        (policies.BINDINGS, policies.NAME),
        (policies.POLICIES, policies.NAME),
    ):
        await world.client.delete(ref, name)


async def test_items_138_153_beside_kyverno_every_pod_is_judged_as_the_function_does(world: World) -> None:
    async with world.manager(), users_of_the_table(world) as places:
        await in_force(world, places)
        await compare(world, places, is_changed=True, but=SPELT_OTHERWISE)


async def test_items_138_139_kyverno_alone_refuses_the_same_host_paths_and_sets_the_same_ids(world: World) -> None:
    async with world.manager(), users_of_the_table(world) as places:
        await in_force(world, places)
    await without_our_rules(world)
    plain = next(case.pod for case in podtable.cases() if (case.user, case.name) == ("john", "nothing set"))

    async def is_admitted() -> bool:
        return not await answer_to(world, world.client, plain, places["john"])

    # The API server asks a policy that was deleted for some moments more.
    await until(is_admitted, "our own policy is gone")
    for place in places.values():
        bad = podtable.mounting("/etc")
        await until(lambda place=place, bad=bad: answer_to(world, world.client, bad, place), "Kyverno refuses")
    wrong: list[Any] = []

    async def one(case: Case) -> None:
        if case.name in SPELT_OTHERWISE | {SECOND_GROUP}:
            return
        verdict = decide(podtable.rules(case.user), case.pod)
        expected = any(each.rule.endswith(refusals.HOST_PATHS) for each in verdict.refusals)
        try:
            stored = await world.create(world.client, case.pod, places[case.user], dry_run=True)
        except kube_errors.ApiError as err:
            if not expected or refusals.HOST_PATHS not in str(err):
                wrong.append((case.user, case.name, str(err)))
            return
        if expected:
            wrong.append((case.user, case.name, "admitted"))
        elif verdict.is_admitted and identity(stored) != identity(verdict.pod):
            wrong.append((case.user, case.name, identity(stored), identity(verdict.pod)))

    await asyncio.gather(*map(one, podtable.cases()))
    assert not wrong, "\n".join(map(str, wrong))


def identity(pod: Any) -> Any:
    """Who the processes of a pod are, as it is in effect."""
    whole = pod["spec"].get("securityContext") or {}
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    own = [
        {**whole, **{key: value for key, value in (each.get("securityContext") or {}).items() if value is not None}}
        for each in containers
    ]
    shared = {key: whole.get(key) for key in ("fsGroup", "supplementalGroups")}
    return shared, [(each.get("runAsUser"), each.get("runAsGroup")) for each in own]
