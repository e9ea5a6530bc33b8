"""The shared cloud HTTP client against a scripted server: what is sent, what is repeated, how answers are judged."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.kube.scripted import Answer, FastClock, Script, ScriptedServer, serving
from tests.waiting import until

from bedplate.cloud.errors import CloudError, InstanceNotFound
from bedplate.cloud.http import errors
from bedplate.cloud.http.client import Call, Client, Options, endpoint_problem, path_of
from bedplate.cloud.http.secrets import Secret
from bedplate.cloud.http.tokens import FixedToken, TokenSource
from bedplate.cloud.metrics import CloudApiMetrics
from bedplate.core import clock
from bedplate.core.errors import Invalid

TOKEN = "tok-4711-very-secret"
GET = Call("GET", "/things/1", "get-thing")
POST = Call("POST", "/things", "create-thing", body={"name": "n"})


class Setup:
    """A server, a client of it, and what both have seen."""

    def __init__(self, server: ScriptedServer, client: Client, time: clock.Clock, registry: CollectorRegistry) -> None:
        self.server, self.client, self.time, self.registry = server, client, time, registry

    def sample(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, {"provider": "test", **labels}) or 0.0


@contextlib.asynccontextmanager
async def opened(
    answers: list[Answer] | Script,
    *,
    tokens: TokenSource | None = None,
    time: clock.Clock | None = None,
    **options: Any,
) -> AsyncIterator[Setup]:
    registry, time = CollectorRegistry(), time or FastClock()
    async with serving(answers) as server:
        client = Client(
            Options(provider="test", **{"endpoint": server.url, "version": "1.2", **options}),
            tokens or FixedToken(Secret(TOKEN)),
            metrics=CloudApiMetrics(registry),
            time=time,
            rng=random.Random(7),
        )
        try:
            yield Setup(server, client, time, registry)
        finally:
            await client.close()


async def test_a_call_carries_token_agent_query_and_extra_headers() -> None:
    async with opened([Answer(200, {"id": "1"})], headers={"API-Version": "7"}) as s:
        call = Call("GET", path_of("a b", "x"), "op", query=(("k", "1"), ("k", "ü&")))
        answer = await s.client.call(call)
    assert answer.data == {"id": "1"} and answer.status == 200 and answer.headers["content-type"] == "application/json"
    asked = s.server.asked[0]
    assert asked.target.startswith("/a%20b/x?k=1&k=")
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["user-agent"] == "test-cloud-controller-manager/1.2"
    assert asked.headers["api-version"] == "7" and asked.headers["accept"] == "application/json"
    assert s.sample("ccm_cloud_api_requests_total", operation="op", code="200") == 1
    assert s.sample("ccm_cloud_api_request_duration_seconds_count", operation="op") == 1
    assert s.sample("ccm_cloud_api_last_success_timestamp_seconds") > 0


async def test_a_body_is_sent_as_json_and_the_connection_is_kept() -> None:
    async with opened([Answer(201, {"id": "1"})]) as s:
        await s.client.call(POST)
        await s.client.call(POST)
    assert s.server.asked[0].json == {"name": "n"} and s.server.connections == 1
    assert s.server.asked[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.Invalid),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (408, errors.Unavailable),
        (409, errors.Conflict),
        (410, errors.Invalid),
        (422, errors.Invalid),
        (429, errors.RateLimited),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
        (507, errors.Unavailable),
        (302, errors.Protocol),
        (203, errors.Protocol),
        (206, errors.Protocol),
    ],
)
async def test_a_status_becomes_its_error_with_the_servers_words(status: int, kind: type[errors.ApiError]) -> None:
    body = {"source": "carbide", "message": "no such luck"}
    async with opened([Answer(status, body, {"X-Request-Id": "r-1", "Location": "http://127.0.0.1:1/"})]) as s:
        with pytest.raises(errors.ApiError) as caught:
            await s.client.call(GET)
    error = caught.value
    assert type(error) is kind and isinstance(error, CloudError) and not isinstance(error, InstanceNotFound)
    assert (error.method, error.path, error.status, error.request_id) == ("GET", "/things/1", status, "r-1")
    assert error.server_message == "no such luck" and error.body == body
    assert "no such luck" in str(error) and "r-1" in str(error)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (Answer(200, b"<html>", {"Content-Type": "text/html"}), "content type"),
        (Answer(200, b'{"id": "1"', {}), "not JSON"),
        (Answer(200, b"", {}), "not JSON"),
        (Answer(200, [1], {}), "not of type object"),
        (Answer(200, b'{"id": "\xff"}', {}), "not JSON"),
        (Answer(200, b"[" * 100_000, {}), "not JSON"),
    ],
)
async def test_an_answer_that_is_none_is_a_protocol_error(answer: Answer, word: str) -> None:
    async with opened([answer]) as s:
        with pytest.raises(errors.Protocol, match=word):
            await s.client.call(GET)
        assert len(s.server.asked) == 1


async def test_an_error_page_that_is_not_json_gives_no_body_to_judge() -> None:
    async with opened([Answer(404, b'{"message": "x"}', {"Content-Type": "text/html"})]) as s:
        with pytest.raises(errors.NotFound) as caught:
            await s.client.call(GET)
    assert caught.value.body is None


async def test_a_truncated_body_is_a_transport_error_and_reads_are_repeated() -> None:
    broken = Answer(200, {"id": "1" * 100}, cut_after=20)
    async with opened([broken, broken, Answer(200, {"id": "1"})]) as s:
        assert (await s.client.call(GET)).data == {"id": "1"}
        assert len(s.server.asked) == 3
    async with opened([broken]) as s:
        with pytest.raises(errors.Transport):
            await s.client.call(GET)
        assert len(s.server.asked) == 4, "four attempts"
        assert s.sample("ccm_cloud_api_requests_total", operation="get-thing", code="<error>") == 4


async def test_a_slow_body_ends_with_the_timeout() -> None:
    async with opened([Answer(200, {"id": "1"}, hang=True)], timeout_s=0.4) as s:
        with pytest.raises(errors.Transport):
            await s.client.call(POST)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_reads_and_deletions_are_repeated_after_passing_statuses(status: int) -> None:
    for method in ("GET", "DELETE"):
        async with opened([Answer(status, {}), Answer(status, {}), Answer(status, {}), Answer(200, {})]) as s:
            await s.client.call(Call(method, "/x", "op"))
            assert len(s.server.asked) == 4
        async with opened([Answer(status, {})]) as s:
            with pytest.raises(errors.ApiError):
                await s.client.call(Call(method, "/x", "op"))
            assert len(s.server.asked) == 4


@pytest.mark.parametrize(("status", "times"), [(408, 1), (429, 4), (500, 1), (502, 1), (503, 4), (504, 1), (409, 1)])
async def test_other_methods_are_repeated_only_when_nothing_can_have_happened(status: int, times: int) -> None:
    for method in ("POST", "PUT"):
        async with opened([Answer(status, {})]) as s:
            with pytest.raises(errors.ApiError):
                await s.client.call(Call(method, "/x", "op", body={}))
            assert len(s.server.asked) == times


async def test_a_post_whose_answer_is_lost_is_not_sent_again() -> None:
    async with opened([Answer(drop=True)]) as s:
        with pytest.raises(errors.Transport) as caught:
            await s.client.call(POST)
        assert len(s.server.asked) == 1 and caught.value.is_sent


async def test_a_post_whose_connection_was_refused_is_tried_again() -> None:
    time = FastClock()
    async with opened([Answer()], time=time, endpoint="http://127.0.0.1:1") as s:
        with pytest.raises(errors.Transport) as caught:
            await s.client.call(POST)
    assert not caught.value.is_sent
    assert s.sample("ccm_cloud_api_requests_total", operation="create-thing", code="<error>") == 4


async def test_backoff_has_full_jitter_and_grows() -> None:
    time = FastClock()
    async with opened([Answer(500, {})], time=time) as s:
        for _ in range(30):
            with pytest.raises(errors.Unavailable):
                await s.client.call(GET)
    first, second, third = time.slept[0::3], time.slept[1::3], time.slept[2::3]
    assert max(first) <= 0.5 < max(second) <= 1.0 < max(third) <= 2.0 and min(third) < 0.5


async def test_retry_after_holds_back_every_call_to_the_endpoint() -> None:
    time = clock.ManualClock()
    answers = [Answer(429, {}, {"Retry-After": "20"}), Answer(200, {})]
    async with opened(answers, time=time) as s:
        first = asyncio.ensure_future(s.client.call(GET))
        await until(lambda: s.client._limits.paused_s() > 0)
        second = asyncio.ensure_future(s.client.call(POST))
        await time.advance(19.5)
        await settle()
        assert len(s.server.asked) == 1 and not first.done() and not second.done()
        while not (first.done() and second.done()):
            await time.advance(1.0)
            await asyncio.sleep(0.01)
        assert len(s.server.asked) == 3
        assert s.sample("ccm_cloud_api_throttled_seconds_total") >= 19


async def test_a_pause_longer_than_the_timeout_refuses_at_once_and_says_how_long() -> None:
    time = clock.ManualClock()
    async with opened([Answer(429, {}, {"Retry-After": "3600"})], time=time) as s:
        with pytest.raises(errors.RateLimited) as caught:
            await s.client.call(GET)
        assert caught.value.retry_after_s == 60.0
        with pytest.raises(errors.RateLimited) as caught:
            await s.client.call(POST)
        assert caught.value.retry_after_s == pytest.approx(60.0) and len(s.server.asked) == 1


async def test_five_transport_failures_open_the_breaker_for_fifteen_seconds() -> None:
    time = FrozenFastClock()
    is_up = False

    def answer(asked: object) -> Answer:
        return Answer(200, {}) if is_up else Answer(drop=True)

    async with opened(answer, time=time) as s:
        for _ in range(5):
            with pytest.raises(errors.Transport):
                await s.client.call(POST)
        assert len(s.server.asked) == 5
        for call in (GET, POST):
            with pytest.raises(errors.Transport) as caught:
                await s.client.call(call)
            assert caught.value.is_fail_fast and caught.value.retry_after_s == pytest.approx(15.0)
        assert len(s.server.asked) == 5
        time.pass_(15.1)
        with pytest.raises(errors.Transport):
            await s.client.call(POST)
        assert len(s.server.asked) == 6, "one attempt is let through, and its failure opens the breaker again"
        with pytest.raises(errors.Transport) as caught:
            await s.client.call(POST)
        assert caught.value.is_fail_fast
        time.pass_(15.1)
        is_up = True
        await s.client.call(GET)
        await s.client.call(POST)


async def test_a_429_slows_the_client_down() -> None:
    async with opened([Answer(429, {}), Answer(200, {})], time=FrozenFastClock()) as s:
        await s.client.call(GET)
        assert (s.client._limits.reads.factor(), s.client._limits.mutations.factor()) == (0.5, 1.0)
    async with opened([Answer(429, {}), Answer(200, {})], time=FrozenFastClock()) as s:
        await s.client.call(POST)
        assert (s.client._limits.reads.factor(), s.client._limits.mutations.factor()) == (0.5, 0.5)


async def test_reads_leave_their_place_however_they_end() -> None:
    answers = [Answer(200, {}), Answer(404, {}), Answer(500, {}), Answer(429, {}), Answer(200, {}), Answer(drop=True)]
    async with opened(answers, time=FrozenFastClock()) as s:
        for _ in range(3):
            with contextlib.suppress(errors.ApiError):
                await s.client.call(GET)
        assert s.client._limits.under_way == 0


async def test_a_read_that_is_given_up_leaves_its_place() -> None:
    async with opened([Answer(200, {}, hang=True)], time=FrozenFastClock()) as s:
        hanging = asyncio.ensure_future(s.client.call(GET))
        await until(lambda: len(s.server.asked) == 1)
        assert s.client._limits.under_way == 1
        hanging.cancel()
        await asyncio.wait([hanging])
        assert s.client._limits.under_way == 0


@pytest.mark.parametrize(("answer", "halves"), [(429, True), (500, True), (503, True), (404, False), (200, False)])
async def test_refusals_and_failures_halve_how_many_reads_are_sent_at_once(answer: int, halves: bool) -> None:
    async with opened([Answer(answer, {}), Answer(200, {})], time=FrozenFastClock()) as s:
        before = s.client._limits.pace.window
        with contextlib.suppress(errors.ApiError):
            await s.client.call(GET)
        assert s.client._limits.pace.window == (before / 2 if halves else before)


async def test_an_attempt_that_is_given_up_does_not_keep_the_breaker_from_another() -> None:
    time = FrozenFastClock()
    answers = [Answer(drop=True)] * 5 + [Answer(200, {}, hang=True), Answer(200, {})]
    async with opened(answers, time=time) as s:
        for _ in range(5):
            with pytest.raises(errors.Transport):
                await s.client.call(POST)
        time.pass_(15.1)
        probe = asyncio.ensure_future(s.client.call(GET))
        await until(lambda: len(s.server.asked) == 6)
        with pytest.raises(errors.Transport) as caught:
            await s.client.call(GET)
        assert caught.value.is_fail_fast, "only one may try"
        probe.cancel()
        await asyncio.wait([probe])
        assert (await s.client.call(GET)).status == 200


async def test_the_guard_is_asked_before_every_mutating_attempt_and_never_for_reads() -> None:
    asked = 0

    def guard() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise RuntimeError("leads no longer")

    async with opened([Answer(503, {}), Answer(200, {})], guard=guard) as s:
        with pytest.raises(RuntimeError, match="leads no longer"):
            await s.client.call(POST)
        assert len(s.server.asked) == 1
        await s.client.call(GET)
        assert asked == 2


async def test_a_dry_run_sends_reads_and_no_changes() -> None:
    async with opened([Answer(200, {"id": "1"})], is_dry_run=True) as s:
        answer = await s.client.call(POST)
        assert answer.is_dry_run and answer.data is None and s.server.asked == []
        assert (await s.client.call(GET)).data == {"id": "1"}


async def test_nothing_is_expected_of_a_deletion() -> None:
    async with opened([Answer(204, b"", {"Content-Type": ""})]) as s:
        answer = await s.client.call(Call("DELETE", "/x", "delete", expects="nothing"))
        assert answer.data is None and answer.status == 204


@pytest.mark.parametrize(
    "endpoint", ["", "api.example.com", "ftp://x", "https://", "https://u:p@x", "https://x?y=1", "https://[::1"]
)
def test_a_bad_endpoint_is_refused_without_repeating_it(endpoint: str) -> None:
    assert endpoint_problem(endpoint)
    with pytest.raises(Invalid) as caught:
        Client(
            Options(provider="test", endpoint=endpoint),
            FixedToken(Secret(TOKEN)),
            metrics=CloudApiMetrics(CollectorRegistry()),
        )
    assert "u:p" not in str(caught.value)


def test_a_path_segment_cannot_lead_elsewhere() -> None:
    assert path_of("v1", "a/../b", "ü") == "/v1/a%2F..%2Fb/%C3%BC"
    for bad in ("", ".", ".."):
        with pytest.raises(ValueError):
            path_of("v1", bad)


async def test_a_401_is_answered_with_one_other_token_and_not_with_a_third() -> None:
    class Endless:
        """Always has another token."""

        def __init__(self) -> None:
            self.number = 0

        async def current(self) -> Secret:
            return Secret(f"token-number-{self.number}")

        async def renew(self, refused: Secret) -> bool:
            self.number += 1
            return True

        async def close(self) -> None:
            return None

    async with opened([Answer(401, {})], tokens=Endless()) as s:
        with pytest.raises(errors.Unauthorized):
            await s.client.call(POST)
        assert [asked.headers["authorization"][-1] for asked in s.server.asked] == ["0", "1"]


class FrozenFastClock(FastClock):
    """A clock that moves only when told, and whose sleeps take no time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0

    def monotonic(self) -> float:
        return self._now

    def pass_(self, seconds: float) -> None:
        self._now += seconds


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)
