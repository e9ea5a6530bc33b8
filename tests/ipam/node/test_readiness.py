"""Lists for the caches, and what they tell of the API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bedplate.api.resources import PODS
from bedplate.core import errors
from bedplate.ipam.node import readiness
from bedplate.ipam.node.poolview import LEAN_CIDRPOOLS, LEAN_IPPOOLS
from bedplate.ipam.node.readiness import ApiSource, NotReady, Readiness
from bedplate.kube import errors as kube_errors
from bedplate.kube.codec import ListResult
from bedplate.runtime.cache import Cache


class Server:
    """Answers, fails, or says nothing."""

    def __init__(self) -> None:
        self.answer: Exception | ListResult[Any] | None = ListResult([], "1")

    async def list(self, *args: object, **kwargs: object) -> ListResult[Any]:
        while self.answer is None:
            await asyncio.sleep(0.01)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Scene:
    def __init__(self) -> None:
        self.server = Server()
        self.state = Readiness()
        self.source = ApiSource(self.server, self.state)  # type: ignore[arg-type]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def _error(kind: type[Exception]) -> Exception:
    made = kind.__new__(kind)
    errors.BedplateError.__init__(made, "told so")  # type: ignore[arg-type]
    return made


async def test_a_server_that_does_not_answer_is_away_and_comes_back(scene: Scene) -> None:
    scene.server.answer = errors.Unavailable("refused")
    with pytest.raises(errors.Unavailable):
        await scene.source.list(LEAN_IPPOOLS)
    assert scene.state.is_away
    scene.server.answer = ListResult([], "1")
    await scene.source.list(LEAN_IPPOOLS)
    assert not scene.state.is_away


async def test_a_server_that_takes_too_long_is_away_meanwhile(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "PATIENCE_S", 0.02)
    scene.server.answer = None
    listing = asyncio.ensure_future(scene.source.list(LEAN_IPPOOLS))
    assert await scene.state.wait(lambda: scene.state.is_away, asyncio.get_running_loop().time() + 60)
    scene.server.answer = ListResult([], "1")
    await listing
    assert not scene.state.is_away


async def test_a_cluster_without_the_resource_has_no_such_pools(scene: Scene) -> None:
    scene.server.answer = _error(kube_errors.NotFound)
    assert not (await scene.source.list(LEAN_CIDRPOOLS)).items
    # Once it was there, its absence is an error like any other: nothing known is forgotten for it.
    scene.server.answer = ListResult([], "1")
    await scene.source.list(LEAN_CIDRPOOLS)
    scene.server.answer = _error(kube_errors.NotFound)
    with pytest.raises(kube_errors.NotFound):
        await scene.source.list(LEAN_CIDRPOOLS)
    with pytest.raises(kube_errors.NotFound):
        await scene.source.list(PODS)


async def test_a_refusal_is_no_absence_and_its_reason_is_kept(scene: Scene) -> None:
    scene.state.is_away = True
    scene.server.answer = _error(kube_errors.Forbidden)
    with pytest.raises(kube_errors.Forbidden):
        await scene.source.list(LEAN_IPPOOLS)
    assert not scene.state.is_away
    assert scene.state.refusal == "told so"
    scene.server.answer = ListResult([], "1")
    await scene.source.list(LEAN_IPPOOLS)
    assert not scene.state.refusal


async def test_readiness_is_all_of_its_parts() -> None:
    state = Readiness()
    pools: Cache[Any] = Cache()
    pods: Cache[Any] = Cache()
    checks = (state.check_store, state.check_caches, state.check_socket)

    def failing() -> int:
        count = 0
        for check in checks:
            try:
                check()
            except NotReady:
                count += 1
        assert state.is_ready == (count == 0)
        return count

    assert failing() == 3
    state.pool_caches, state.pod_caches = (pools,), (pods,)
    state.has_store = state.has_socket = True
    assert failing() == 1
    pools.synced.set()
    assert failing() == 1
    pods.synced.set()
    assert failing() == 0
    state.must_recover = True
    assert failing() == 1


async def test_beside_another_daemon_the_caches_are_enough() -> None:
    state = Readiness()
    state.is_standing_by = True
    state.check_store()
    state.check_socket()
    with pytest.raises(NotReady, match="pools have not been listed"):
        state.check_caches()
    assert "stand-by" in state.note() and not state.is_ready
    state.is_standing_by = False
    with pytest.raises(NotReady):
        state.check_store()
    assert state.note() == ""


async def test_waiting_ends_with_the_time_that_was_given() -> None:
    state, loop = Readiness(), asyncio.get_running_loop()
    assert not await state.wait(lambda: False, loop.time() + 0.05)
    assert await state.wait(lambda: True, loop.time())


@pytest.mark.parametrize("reason", ["listed", "away", "refused"])
async def test_pods_are_listed_after_the_pools_or_when_these_cannot_be(scene: Scene, reason: str) -> None:
    pools: Cache[Any] = Cache()
    scene.state.pool_caches = (pools,)
    listing = asyncio.ensure_future(scene.source.list(PODS))
    await asyncio.sleep(0.01)
    assert not listing.done()
    if reason == "listed":
        pools.replace([], "1")
        scene.state.changed()
    elif reason == "away":
        scene.state.unanswered("no response")
    else:
        scene.state.refused("forbidden")
    async with asyncio.timeout(2):
        await listing
