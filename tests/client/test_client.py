"""The client of a head: which head it asks, how often, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.client.heads import Said, problem, scripted
from tests.waiting import DEADLINE_S

from bedplate.api import headapi
from bedplate.client import Forbidden, HeadClient, Stale, Unauthorized
from bedplate.core import errors
from bedplate.core.clock import ManualClock

WHO = Said(body={"user": "anna", "role": "admin", "head": "h", "revision": 3})


class Impatient(ManualClock):
    """Sleeps at once, and remembers for how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


def opened(*urls: str, clock: Impatient | None = None, **options: object) -> HeadClient:
    return HeadClient(urls, token="t", clock=clock or Impatient(), rng=random.Random(1), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(404, detail="no such node", hint="look"), errors.NotFound),
        (problem(401), Unauthorized),
        (problem(403), Forbidden),
        (problem(400, problems=["a", "b"]), errors.Invalid),
        (problem(409, "urn:bedplate:invalid", problems=["a"]), errors.Invalid),
        (problem(409, "urn:bedplate:conflict"), errors.Conflict),
        (problem(412), errors.Conflict),
        (problem(409, "urn:bedplate:stale", author="olga", revision=7), Stale),
        (problem(500), errors.Unavailable),
        (problem(507), errors.Unavailable),
        (Said(404, "<html>not here</html>", content_type="text/html"), errors.Unavailable),
        (Said(302, "", {"Location": "http://elsewhere/"}), errors.Unavailable),
        (Said(200, "no JSON"), errors.Unavailable),
        (Said(200, {"user": "anna"}), errors.Unavailable),
    ],
)
async def test_an_answer_is_what_it_says_and_nothing_else_is_absence(
    answer: Said, kind: type[errors.BedplateError]
) -> None:
    async with scripted(answer) as head, opened(head.url) as client:
        with pytest.raises(errors.BedplateError) as told:
            await client.whoami()
    assert type(told.value) is kind
    if isinstance(told.value, Stale):
        assert (told.value.author, told.value.revision) == ("olga", 7)
    if isinstance(told.value, errors.NotFound):
        assert (str(told.value), told.value.hint) == ("no such node", "look")


async def test_a_read_is_repeated_until_it_is_answered() -> None:
    clock = Impatient()
    async with scripted(Said(0), problem(500), problem(503), WHO) as head, opened(head.url, clock=clock) as client:
        assert (await client.whoami()).user == "anna"
    assert len(head.asked) == 4
    assert len(clock.slept) == 3
    assert clock.slept == sorted(clock.slept), "each time it waits longer"


async def test_it_gives_up_in_the_end_and_says_why() -> None:
    async with scripted(problem(503, detail="busy")) as head, opened(head.url, attempts=3) as client:
        with pytest.raises(errors.Unavailable, match="busy"):
            await client.whoami()
    assert len(head.asked) == 3


async def test_it_waits_as_long_as_the_head_asks_for() -> None:
    clock = Impatient()
    async with (
        scripted(problem(503, headers={"Retry-After": "7"}), WHO) as head,
        opened(head.url, clock=clock) as client,
    ):
        await client.whoami()
    assert clock.slept == [7.0]


async def test_a_refusal_is_not_repeated() -> None:
    async with scripted(problem(409)) as head, opened(head.url) as client:
        with pytest.raises(errors.Conflict):
            await client.commit([])
    assert len(head.asked) == 1


async def test_a_commit_is_repeated_with_the_same_nonce() -> None:
    done = Said(body={"changes": [], "revision": None})
    async with scripted(Said(0), Said(0), done) as head, opened(head.url) as client:
        await client.commit([headapi.Edit(mode="category", key="x")])
        await client.commit([], nonce="mine")
    nonces = [asked.body["nonce"] for asked in head.asked]
    assert len(set(nonces[:3])) == 1
    assert nonces[3] == "mine"


async def test_every_write_carries_a_nonce() -> None:
    thing = Said(body={"mode": "category", "key": "x", "revision": 2, "type": "Category"})
    async with scripted(thing) as head, opened(head.url) as client:
        await client.put("category", "x", {})
        await client.create("category", "x")
    async with scripted(Said(204)) as other, opened(other.url) as client:
        await client.delete("category", "x", base=4)
    keys = [asked.headers["Idempotency-Key"] for asked in (*head.asked, *other.asked)]
    assert len(set(keys)) == 3
    assert other.asked[0].query == {"revision": "4"}


async def test_a_report_that_may_have_arrived_is_not_repeated() -> None:
    async with scripted(Said(0)) as head, opened(head.url) as client:
        with pytest.raises(errors.Unavailable):
            await client.report("node001")
    assert len(head.asked) == 1
    answered = Said(body={"revision": 4})
    async with scripted(problem(503), answered) as head, opened(head.url) as client:
        assert await client.report("node001") == 4, "a head that refused did not take it"


async def test_a_write_goes_to_the_head_that_is_active() -> None:
    async with scripted(Said(body={"changes": []})) as active:
        sent = problem(503, headers={"Bedplate-Active": active.url})
        clock = Impatient()
        async with scripted(sent) as passive, opened(passive.url, clock=clock) as client:
            await client.commit([])
            await client.commit([])
            assert client.url == active.url
    assert len(passive.asked) == 1
    assert len(active.asked) == 2
    assert clock.slept == [0.0], "there is nothing to wait for"


async def test_a_dead_head_is_passed_by() -> None:
    async with scripted(WHO) as gone:
        pass
    async with scripted(WHO) as alive, opened(gone.url, alive.url) as client:
        assert (await client.whoami()).head == "h"
        await client.whoami()
    assert len(alive.asked) == 2


async def test_heads_that_send_to_each_other_are_left_alone_after_a_while() -> None:
    async with scripted(WHO) as one, scripted(WHO) as two:
        one.script = [problem(503, headers={"Bedplate-Active": two.url})]
        two.script = [problem(503, headers={"Bedplate-Active": one.url})]
        async with opened(one.url, attempts=5) as client:
            with pytest.raises(errors.Unavailable):
                await client.commit([])
    assert len(one.asked) + len(two.asked) == 5


async def test_the_token_goes_along_and_names_are_quoted() -> None:
    thing = Said(body={"mode": "device", "key": "a b", "revision": 2, "type": "PhysicalNode"})
    async with scripted(thing) as head, opened(head.url) as client:
        await client.get("device", "ä?b", at=3)
    assert head.asked[0].headers["Authorization"] == "Bearer t"
    assert head.asked[0].path == "/api/v1/objects/device/ä?b"
    assert head.asked[0].query == {"at": "3"}


async def test_a_client_needs_a_head_and_to_be_open() -> None:
    with pytest.raises(errors.Invalid):
        HeadClient([])
    with pytest.raises(errors.Invalid):
        await HeadClient("http://127.0.0.1:1").whoami()
    with pytest.raises(errors.Invalid):
        async with HeadClient("no-url") as client:
            await client.whoami()


@pytest.mark.parametrize("url", ["http://[::1", "https://head:99999", "https://head:0", "https://:8081", "no-url"])
def test_what_cannot_be_the_url_of_a_head_is_told_as_such(url: str) -> None:
    with pytest.raises(errors.Invalid, match="is not the URL of a head") as told:
        HeadClient(["https://head:8081", url])
    assert told.value.hint == "write https://HOST:PORT"


@pytest.mark.parametrize("active", ["http://[::1", "http://a:99999", "\xb2", "//", "x" * 3000])
@pytest.mark.parametrize("retry", ["\xb2", "-1", "1e9", "9" * 400, "Wed, 21 Oct 2026 07:28:00 GMT"])
async def test_headers_that_mean_nothing_are_passed_over(active: str, retry: str) -> None:
    """A head that is confused, or hostile, ends neither a client nor its patience."""
    sent = problem(503, headers={"Bedplate-Active": active, "Retry-After": retry})
    clock = Impatient()
    async with scripted(sent, sent, WHO) as head, opened(head.url, clock=clock) as client:
        assert (await client.whoami()).head == "h"
        assert client.url == head.url
    async with scripted(sent) as head, opened(head.url, clock=clock, attempts=2) as client:
        with pytest.raises(errors.Unavailable) as told:
            await client.whoami()
    assert (told.value.retry_after_s or 0.0) <= 600.0 and max(clock.slept) <= 60.0


async def test_what_a_newer_head_adds_is_skipped() -> None:
    newer = Said(body={"user": "anna", "role": "admin", "head": "h", "revision": 3, "mood": "good"})
    async with scripted(newer) as head, opened(head.url) as client:
        assert (await client.whoami()).revision == 3


async def test_events_go_on_after_the_last_one_when_the_connection_is_lost() -> None:
    def stream(*events: tuple[int, str]) -> Said:
        text = "".join(
            f'id: {number}.0.0\nevent: revision\ndata: {{"number": {number}, "time": "t", "author": "{author}", '
            f'"changes": []}}\n\n: still here\n\n'
            for number, author in events
        )
        return Said(200, text, content_type="text/event-stream")

    told: list[bool] = []
    async with (
        scripted(stream((2, "a"), (3, "b")), Said(0), problem(503), stream((4, "c"))) as head,
        opened(head.url) as client,
    ):
        seen = []
        async with asyncio.timeout(DEADLINE_S):
            async for event in client.events(after=1, types=["revision"], on_link=lambda is_up, _: told.append(is_up)):
                assert event.revision is not None
                seen.append((event.revision.number, event.id))
                if len(seen) == 3:
                    break
    assert seen == [(2, "2.0.0"), (3, "3.0.0"), (4, "4.0.0")]
    assert [asked.headers["Last-Event-ID"] for asked in head.asked] == ["1", "3.0.0", "3.0.0", "3.0.0"]
    assert {asked.query["types"] for asked in head.asked} == {"revision"}
    assert told == [True, False, True]


async def test_events_end_when_the_head_refuses() -> None:
    async with scripted(problem(403, detail="not you")) as head, opened(head.url) as client:
        with pytest.raises(Forbidden, match="not you"):
            async for _ in client.events():
                pass
    assert len(head.asked) == 1


@pytest.mark.parametrize(
    "url", ["http://head:8081", "http://192.0.2.1", "http://[2001:db8::1]:8081", "http://127.0.0.1.org"]
)
async def test_a_token_is_not_sent_in_clear_to_another_machine(url: str) -> None:
    async with opened(url) as client:
        with pytest.raises(errors.Denied, match="not encrypted"):
            await client.whoami()
        with pytest.raises(errors.Denied, match="not encrypted"):
            await anext(client.events())


async def test_a_token_does_not_follow_a_head_to_a_plain_address() -> None:
    passive = problem(503, headers={"Bedplate-Active": "http://192.0.2.1:8081"})
    async with scripted(passive) as head, opened(head.url, attempts=2) as client:
        with pytest.raises(errors.Denied, match=r"192\.0\.2\.1.*not encrypted"):
            await client.whoami()
