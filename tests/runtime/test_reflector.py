"""The reflector: its state machine as values, and its behaviour against a scripted server."""

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bedplate.api.meta import Status
from bedplate.api.resources import CONFIG_MAPS
from bedplate.core.clock import ManualClock
from bedplate.kube import codec, errors
from bedplate.kube.codec import ListResult
from bedplate.runtime import reflector
from bedplate.runtime.cache import Cache
from bedplate.runtime.reflector import (
    Ended,
    Expired,
    Failed,
    Listed,
    Listing,
    Reflector,
    Refused,
    Waiting,
    Watching,
    following,
)

REF = CONFIG_MAPS.raw()


@pytest.mark.parametrize(
    ("state", "outcome", "expected"),
    [
        (Listing(), Listed("7"), Watching("7")),
        (Listing(), Failed(""), Waiting(Listing())),
        (Listing(), Expired(), Waiting(Listing())),
        (Watching("7"), Ended("9", was_healthy=True), Watching("9")),
        (Watching("7"), Ended("7", was_healthy=False), Waiting(Watching("7"))),
        (Watching("7"), Failed("8"), Waiting(Watching("8"))),
        (Watching("7"), Expired(), Listing()),
        (Watching("7"), Refused(), Waiting(Listing())),
        (Waiting(Watching("8")), None, Watching("8")),
        (Waiting(Listing()), None, Listing()),
    ],
)
def test_transitions(state: reflector.State, outcome: reflector.Outcome | None, expected: reflector.State) -> None:
    assert following(state, outcome) == expected


def test_what_cannot_happen_is_a_bug_not_a_guess() -> None:
    with pytest.raises(AssertionError):
        following(Listing(), Ended("1", was_healthy=True))


def item(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)}}


def expired() -> errors.ApiError:
    target = errors.Target("GET", "/")
    return errors.from_status(target, Status(code=410, reason="Expired", message="too old resource version"))


class Script:
    """A server that answers lists and watches from two lists of prepared answers, then hangs."""

    def __init__(self, lists: list[Any], watches: list[Any]) -> None:
        self.lists, self.watches = lists, watches
        self.asked: list[str] = []
        self.idle = asyncio.Event()

    async def list(self, ref: Any, namespace: str | None = None, **_: str) -> ListResult[Any]:
        self.asked.append("list")
        answer = self.lists.pop(0) if self.lists else await self._hang()
        if isinstance(answer, Exception):
            raise answer
        return ListResult(answer[0], answer[1])

    async def watch_batches(
        self, ref: Any, namespace: str | None = None, *, resource_version: str = "", **_: str
    ) -> AsyncGenerator[Any, None]:
        self.asked.append(f"watch {resource_version}")
        answer = self.watches.pop(0) if self.watches else await self._hang()
        for part in answer:
            if isinstance(part, Exception):
                raise part
            yield part

    async def _hang(self) -> Any:
        self.idle.set()
        await asyncio.Event().wait()


async def play(script: Script, clock: ManualClock | None = None) -> tuple[Cache[Any], Reflector[Any]]:
    """Run a reflector until the script is finished."""
    cache: Cache[Any] = Cache()
    time = clock or ManualClock()
    runner = Reflector(script, REF, cache, time=time, rng=random.Random(1))
    task = asyncio.create_task(runner.run())
    while not script.idle.is_set():
        await time.advance(1)
        assert not task.done() or task.exception() is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return cache, runner


async def test_events_after_the_list_are_applied_in_order() -> None:
    events = [codec.Added(item("b", 11)), codec.Modified(item("a", 12)), codec.Deleted(item("b", 13))]
    cache, _ = await play(Script([([item("a", 5)], "10")], [[events]]))
    assert {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in cache} == {"a": "12"}
    assert cache.resource_version == "13"


async def test_a_cut_watch_resumes_from_the_last_event_without_a_relist() -> None:
    cut = [[codec.Added(item("b", 11))], errors.Interrupted("cut")]
    script = Script([([item("a", 5)], "10")], [cut])
    cache, runner = await play(script)
    assert script.asked == ["list", "watch 10", "watch 11"]
    assert len(cache) == 2
    assert runner.relists == 1


async def test_a_bookmark_moves_the_resume_point() -> None:
    from bedplate.api.meta import ObjectMeta, PartialObject

    mark = codec.Bookmark(PartialObject(metadata=ObjectMeta(resource_version="500")))
    script = Script([([], "10")], [[[mark], errors.Interrupted("cut")]])
    await play(script)
    assert script.asked[-1] == "watch 500"


async def test_expired_history_leads_to_a_relist_that_swaps_the_cache() -> None:
    script = Script([([item("a", 5), item("old", 6)], "10"), ([item("a", 40), item("new", 41)], "50")], [[expired()]])
    cache, runner = await play(script)
    assert script.asked == ["list", "watch 10", "list", "watch 50"]
    assert {one["metadata"]["name"] for one in cache} == {"a", "new"}
    assert runner.relists == 2


async def test_an_error_never_empties_the_cache() -> None:
    down = errors.ConnectionFailed("connection refused")
    script = Script([([item("a", 5)], "10"), down, down], [[expired()]])
    cache, _ = await play(script)
    assert script.asked.count("list") == 4
    assert len(cache) == 1


async def test_failures_are_spaced_further_and_further_apart() -> None:
    clock = ManualClock()
    times: list[float] = []

    class Down(Script):
        async def list(self, ref: Any, namespace: str | None = None, **_: str) -> ListResult[Any]:
            times.append(clock.monotonic())
            if len(times) > 8:
                await self._hang()
            raise errors.ConnectionFailed("connection refused")

    await play(Down([], []), clock)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[-1] > 10 * gaps[0]
    assert sum(gaps) > 60


async def test_a_watch_that_is_accepted_and_dropped_at_once_is_not_hammered() -> None:
    clock = ManualClock()
    script = Script([([], "10")], [[] for _ in range(6)])
    started = clock.monotonic()
    await play(script, clock)
    assert clock.monotonic() - started > 10


@pytest.mark.parametrize(("code", "reason"), [(400, "BadRequest"), (403, "Forbidden"), (504, "Timeout"), (404, "")])
async def test_a_watch_that_the_server_refuses_leads_to_a_relist(code: int, reason: str) -> None:
    """Asking again from the same version would be refused forever, while the cache grows old."""
    no = errors.from_status(errors.Target("GET", "/"), Status(code=code, reason=reason, message="no"))
    script = Script([([item("a", 5)], "10"), ([item("b", 6)], "3")], [[no]])
    cache, _ = await play(script)
    assert script.asked == ["list", "watch 10", "list", "watch 3"]
    assert {one["metadata"]["name"] for one in cache} == {"b"}


@pytest.mark.parametrize(("code", "reason"), [(429, "TooManyRequests"), (500, "InternalError"), (503, "")])
async def test_a_server_in_trouble_is_asked_to_go_on_without_a_relist(code: int, reason: str) -> None:
    busy = errors.from_status(errors.Target("GET", "/"), Status(code=code, reason=reason, message="later"))
    script = Script([([item("a", 5)], "10")], [[busy]])
    await play(script)
    assert script.asked == ["list", "watch 10", "watch 10"]


async def test_a_watch_that_was_healthy_but_quiet_ends_the_backoff_of_earlier_failures() -> None:
    clock = ManualClock()
    times: list[float] = []

    class Quiet(Script):
        async def watch_batches(
            self, ref: Any, namespace: str | None = None, *, resource_version: str = "", **_: str
        ) -> AsyncGenerator[Any, None]:
            times.append(clock.monotonic())
            if len(times) > 1:
                await self._hang()
            await clock.sleep(300)
            times.append(clock.monotonic())
            raise errors.Interrupted("cut")
            yield

    down = errors.ConnectionFailed("connection refused")
    await play(Quiet([down] * 7 + [([], "10")], []), clock)
    _, cut, again = times
    assert again - cut < 5


async def test_history_that_is_gone_right_after_every_list_does_not_make_a_busy_loop() -> None:
    """Lists are the dearest requests: a server that keeps no history must not be asked for them all the time."""
    clock = ManualClock()
    script = Script([([], str(number)) for number in range(6)], [[expired()] for _ in range(6)])
    started = clock.monotonic()
    await play(script, clock)
    assert script.asked.count("list") == 7
    assert clock.monotonic() - started > 20


async def test_history_that_is_gone_after_an_outage_is_listed_anew_at_once() -> None:
    clock = ManualClock()
    moments: list[float] = []

    class Timed(Script):
        async def list(self, ref: Any, namespace: str | None = None, **selection: str) -> ListResult[Any]:
            moments.append(clock.monotonic())
            return await super().list(ref, namespace, **selection)

    script = Timed([([], "1"), ([], "2")], [[errors.Interrupted("cut")], [expired()]])
    await play(script, clock)
    assert script.asked == ["list", "watch 1", "watch 1", "list", "watch 2"]
    assert moments[1] - moments[0] < 2, "one wait, for the cut; none for the history"
