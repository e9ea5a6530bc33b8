"""The agent and a real head over mutual TLS: enrolment, a pinned authority, turns, revocation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.head.folder.test_sitekeys import serving
from tests.waiting import until

from bedplate.agent import enrol
from bedplate.agent.link import Link, Login
from bedplate.api.headapi import TurnAnswer
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.daemon import Daemon
from bedplate.head.folder import administration, creation
from bedplate.head.folder.datafolder import Folder


@pytest.fixture
async def folder(tmp_path: Path) -> Folder:
    return await creation.make(tmp_path / "site", name="basecm10", nodes=2)


@pytest.fixture
async def site(folder: Folder) -> AsyncIterator[tuple[Daemon, HeadClient]]:
    async with serving(folder) as daemon, administration.client(folder, daemon.url) as admin:
        yield daemon, admin


async def token_for(folder: Folder, node: str) -> str:
    return (await administration.create_token(folder, node, kind="enrol", name="", days=0))[1]


async def enrolled(folder: Folder, daemon: Daemon, place: Path, node: str) -> Login:
    answer = await enrol.enrol([daemon.url], await token_for(folder, node), str(place))
    assert answer.node == node
    return Login(node, (daemon.url,), str(place / enrol.AUTHORITY), str(place / enrol.PAIR))


async def test_an_enrolled_agent_asks_with_its_certificate_and_for_itself_alone(
    folder: Folder, site: tuple[Daemon, HeadClient], tmp_path: Path
) -> None:
    daemon, admin = site
    login = await enrolled(folder, daemon, tmp_path / "node001", "node001")
    async with Link(login) as link:
        wanted = await link.desired("", 0.0)
        assert wanted is not None
        assert wanted.state.node == "node001"
    async with Link(Login("node002", *(getattr(login, name) for name in ("urls", "ca_file", "cert_file")))) as other:
        with pytest.raises(errors.Denied):
            await other.desired("", 0.0)
    with pytest.raises(errors.Conflict, match="the next one is issued from"):
        await enrol.renew("node001", login.urls, str(tmp_path / "node001"))
    certificate = Path(login.cert_file).read_bytes().partition(b"-----BEGIN PRIVATE KEY")[0]
    await admin.revoke_certificates(fingerprint=enrol._fingerprint(certificate))
    async with Link(login) as revoked:
        with pytest.raises(errors.Denied):
            await revoked.desired("", 0.0)


async def test_a_token_works_once_and_a_repeated_request_gets_its_answer(
    folder: Folder, site: tuple[Daemon, HeadClient], tmp_path: Path
) -> None:
    daemon, _ = site
    token = await token_for(folder, "node001")
    first = await enrol.enrol([daemon.url], token, str(tmp_path / "first"))
    # The answer was lost: the same key asks again.
    pair = (tmp_path / "first" / enrol.PAIR).read_bytes()
    (tmp_path / "first/agent.key.new").write_bytes(pair[pair.index(b"-----BEGIN PRIVATE KEY") :])
    assert (await enrol.enrol([daemon.url], token, str(tmp_path / "first"))).certificate == first.certificate
    with pytest.raises(errors.Denied):
        await enrol.enrol([daemon.url], token, str(tmp_path / "thief"))


async def test_members_of_a_group_take_turns_and_a_failure_stops_the_others(
    folder: Folder, site: tuple[Daemon, HeadClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, admin = site
    # So long a member waits for the one that failed to be well again.
    monkeypatch.setattr("bedplate.agent.link._TURN_WAIT_S", 2.0)
    await admin.create("etcd", "kube-default")
    role = {"Etcd::Host": {"type": "EtcdHostRole", "values": {"etcd_cluster": "kube-default"}}}
    await admin.create("configurationoverlay", "members", {"nodes": ["node001", "node002"]}, children={"roles": role})
    logins = [await enrolled(folder, daemon, tmp_path / name, name) for name in ("node001", "node002")]
    order: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(Link(login)) for login in logins]

        async def restart(link: Link, name: str) -> None:
            async with link.take("etcd:kube-default", "etcd"):
                order.append(f"{name} begins")
                await asyncio.sleep(0.05)
                order.append(f"{name} ends")

        await asyncio.gather(restart(first, "a"), restart(second, "b"))
        assert sorted((order[:2], order[2:])) == [["a begins", "a ends"], ["b begins", "b ends"]]
        with pytest.raises(ValueError, match="it did not start"):
            async with first.take("etcd:kube-default", "etcd"):
                raise ValueError("it did not start")
        with pytest.raises(errors.Unavailable, match="it failed on node001"):
            await restart(second, "b")
        await admin.release_turn("etcd:kube-default")
        await restart(second, "b")
        await until(lambda: order.count("b ends") == 2)


class Away(HeadClient):
    """A head that does not answer the first times that it is asked for something."""

    def __init__(self, times: int) -> None:
        super().__init__("http://127.0.0.1:9")
        self.left = times
        self.asked: list[str] = []

    def _answer(self, what: str) -> None:
        self.asked.append(what)
        self.left -= 1
        if self.left >= 0:
            raise errors.Unavailable("connection refused")

    async def take_turn(self, node: str, group: str, *, wait_s: float = 0.0, lasts_s: float = 0.0) -> TurnAnswer:
        self._answer("take")
        return TurnAnswer(group=group, is_granted=True)

    async def end_turn(self, node: str, group: str, *, failed: bool = False, text: str = "") -> None:
        self._answer(f"end {text}")


async def took(head: Away, problem: BaseException | None = None) -> list[str]:
    """What a head was asked while a node took its turn; the clock moves on while it waits."""
    clock = ManualClock()
    link = Link(Login("node001", ("http://127.0.0.1:9",)), clock=clock)
    link._client, link._mark = head, link._files_mark()

    async def turn() -> None:
        async with link.take("etcd:kube-default", "etcd"):
            if problem is not None:
                raise problem

    taking = asyncio.create_task(turn())
    while not taking.done():
        await clock.advance(1.0)
    await taking
    return head.asked


async def test_item_216_a_turn_waits_for_a_head_that_is_restarted() -> None:
    assert await took(Away(3)) == ["take"] * 4 + ["end "]


async def test_item_216_a_turn_is_given_back_once_the_head_is_there_again() -> None:
    class AwayLater(Away):
        async def take_turn(self, node: str, group: str, *, wait_s: float = 0.0, lasts_s: float = 0.0) -> TurnAnswer:
            return TurnAnswer(group=group, is_granted=True)

    assert await took(AwayLater(2)) == ["end ", "end ", "end "]
    failed = AwayLater(1)
    with pytest.raises(ValueError, match="it did not start"):
        await took(failed, ValueError("it did not start"))
    assert failed.asked == ["end it did not start"] * 2
    stopped = AwayLater(1)
    with pytest.raises(asyncio.CancelledError):
        await took(stopped, asyncio.CancelledError())
    assert len(stopped.asked) == 1, "who is told to stop does not wait"


async def test_a_head_that_does_not_let_a_turn_wait_is_not_asked_all_the_time() -> None:
    class Hasty(Away):
        async def take_turn(self, node: str, group: str, *, wait_s: float = 0.0, lasts_s: float = 0.0) -> TurnAnswer:
            self.asked.append("take")
            await asyncio.sleep(0)
            return TurnAnswer(group=group, is_granted=False, holder="node002")

    clock, head = ManualClock(), Hasty(0)
    link = Link(Login("node001", ("http://127.0.0.1:9",)), clock=clock)
    link._client, link._mark = head, link._files_mark()

    async def turn() -> None:
        async with link.take("etcd:kube-default", "etcd"):
            pass

    taking = asyncio.create_task(turn())
    for _ in range(3600):
        await clock.advance(1.0)
    assert 30 <= len(head.asked) <= 80, "an hour of it"
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking


@pytest.mark.parametrize("content", [b"\x8f\xff", b"a token", b"to\nken", b"to\0ken", "tök".encode()])
async def test_what_is_not_a_token_is_told_as_such_and_may_be_put_right(tmp_path: Path, content: bytes) -> None:
    """An agent that ended because of it would not be there when it is put right."""
    place = tmp_path / "token"
    place.write_bytes(content)
    async with Link(Login("node001", ("http://127.0.0.1:9",), token_file=str(place))) as link:
        with pytest.raises(errors.Denied, match="it is not a token") as told:
            await link.desired("", 0.0)
        assert told.value.hint
        place.write_text("bph_token\n")
        with pytest.raises(errors.Unavailable):
            await link.desired("", 0.0)


async def test_a_head_that_stays_away_is_not_waited_for_for_ever() -> None:
    with pytest.raises(errors.Unavailable, match="connection refused"):
        await took(Away(10_000))
