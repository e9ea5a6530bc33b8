"""What a stranger gets from either side: an agent that somebody plays the head for, a head that somebody plays an agent
for. Nothing is believed, nothing falls over, nothing is written outside of the node's folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.agent.machines import FakeHead, Machine, desired
from tests.agent.test_link import enrolled
from tests.agent.test_loop import running
from tests.head.folder.serving import serving
from tests.ui.rest.serving import Served, served
from tests.ui.rest.test_enrolment import OPEN, addresses
from tests.waiting import until

from bedplate.agent import settings as options
from bedplate.agent.link import Link, Login
from bedplate.agent.loop import Agent
from bedplate.agent.sound import sound
from bedplate.api.desired import Check, Desired, File, Flag, Service
from bedplate.api.headapi import ReportRequest
from bedplate.client import Wanted
from bedplate.client.transport import ACTIVE
from bedplate.core import errors
from bedplate.head.access import NODES
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import creation, pki

ANY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as opened:
        yield opened


# A head that is none


class Impostor:
    """A server that answers whatever it is told to, and remembers what it was asked."""

    def __init__(self, answer: bytes = b"HTTP/1.1 304 Not Modified\r\n\r\n") -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
            await writer.drain()
        writer.transport.abort()

    @contextlib.asynccontextmanager
    async def up(self, pair: pki.Pair | None, folder: Path) -> AsyncIterator[Impostor]:
        context = None
        if pair is not None:
            folder.mkdir(exist_ok=True)
            (folder / "server.pem").write_bytes(pair.certificate + pair.key)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "server.pem")
        listening = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = listening.sockets[0].getsockname()[1]
        async with listening:
            yield self

    def url(self, scheme: str = "https") -> str:
        return f"{scheme}://127.0.0.1:{self.port}"


def good(state: Desired) -> bytes:
    body = msgspec.json.encode(state)
    return b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: %d\r\n\r\n' % len(body) + body


HERE = ("127.0.0.1", "localhost")
NOW = datetime.now(UTC)
OTHERS: dict[str, Callable[[pki.Authority], pki.Pair]] = {
    "another-authority": lambda own: pki.Authority.make("basecm10", NOW).server(HERE, "basecm10", NOW),
    "another-name": lambda own: own.server(("elsewhere.example",), "basecm10", NOW),
    "the-certificate-of-a-node": lambda own: own.client("node002", NODES, NOW),
    "expired": lambda own: own.server(HERE, "basecm10", NOW - timedelta(days=4000)),
    "not-yet": lambda own: own.server(HERE, "basecm10", NOW + timedelta(days=30)),
}


@pytest.fixture
def authority(tmp_path: Path) -> pki.Authority:
    made = pki.Authority.make("basecm10", NOW)
    (tmp_path / "ca.crt").write_bytes(made.pair.certificate)
    own = made.client("node001", NODES, NOW)
    (tmp_path / "agent.pem").write_bytes(own.certificate + own.key)
    return made


def link_to(url: str, folder: Path) -> Link:
    return Link(Login("node001", (url,), str(folder / "ca.crt"), str(folder / "agent.pem")))


@pytest.mark.parametrize("kind", OTHERS)
async def test_a_server_that_is_not_a_head_of_this_site_is_told_nothing_and_not_believed(
    authority: pki.Authority, tmp_path: Path, kind: str
) -> None:
    impostor = Impostor(good(desired(File(path="/etc/evil", content="x"))))
    async with impostor.up(OTHERS[kind](authority), tmp_path / "impostor"), link_to(impostor.url(), tmp_path) as link:
        with pytest.raises(errors.Denied, match="not trusted"):
            await link.desired("", 0.0)
        with pytest.raises(errors.Denied, match="not trusted"):
            await link.report(ReportRequest())
    assert impostor.asked == []


async def test_the_head_itself_is_believed(authority: pki.Authority, tmp_path: Path) -> None:
    head = Impostor(good(desired()))
    async with (
        head.up(authority.server(HERE, "basecm10", NOW), tmp_path / "head"),
        link_to(head.url(), tmp_path) as link,
    ):
        assert (await link.desired("", 0.0)) == Wanted("x", desired())
    assert len(head.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "HTTP/1.1 302 Found\r\nLocation: {url}/api/v1/nodes/node001/desired\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 308 Permanent Redirect\r\nLocation: {url}/\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 503 Service Unavailable\r\n{ACTIVE}: {{url}}\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["found", "moved", "active-elsewhere"],
)
async def test_nobody_is_led_to_a_server_that_proves_nothing(
    authority: pki.Authority, tmp_path: Path, answer: str
) -> None:
    other, head = Impostor(good(desired())), Impostor()
    async with (
        other.up(None, tmp_path),
        head.up(authority.server(HERE, "basecm10", NOW), tmp_path / "head"),
        link_to(head.url(), tmp_path) as link,
    ):
        head.answer = answer.format(url=other.url("http")).encode()
        with pytest.raises(errors.Unavailable):
            await link.desired("", 0.0)
    assert head.asked and other.asked == []


def test_with_a_certificate_no_head_is_asked_in_the_clear(authority: pki.Authority, tmp_path: Path) -> None:
    given = {"node": "node001", "ca": str(tmp_path / "ca.crt"), "cert": str(tmp_path / "agent.pem")}
    told = options.read(str(tmp_path), "", {**given, "urls": ("https://head:8081", "http://head:8080")})
    with pytest.raises(errors.Invalid) as refused:
        options.login(told)
    assert refused.value.problems == (
        "http://head:8080 proves nothing: with a certificate heads are asked over https alone",
    )
    assert options.login(options.read(str(tmp_path), "", {**given, "urls": ("https://head:8081",)})).node == "node001"


# A node that asks for others


async def test_the_certificate_of_a_node_opens_nothing_of_another(tmp_path: Path) -> None:
    """Every method of every address, with a certificate of node001 over a real connection."""
    folder = await creation.make(tmp_path / "site", name="basecm10", nodes=2)
    own = {*OPEN, ("POST", "/api/v1/nodes/node001/certificate")}
    async with serving(folder) as daemon:
        login = await enrolled(folder, daemon, tmp_path / "node001", "node001")
        context = ssl.create_default_context(cafile=login.ca_file)
        context.load_cert_chain(login.cert_file)
        asked = 0
        async with aiohttp.ClientSession(daemon.url, connector=aiohttp.TCPConnector(ssl=context)) as http:
            for method, path, operation in addresses(SCHEMA):
                if operation.is_public or (method, path) in own:
                    continue
                headers = {"Content-Type": "application/json"} if operation.body else {}
                async with http.request(
                    method, path, data=b"{}" if operation.body else None, headers=headers
                ) as answer:
                    told = await answer.json(content_type=None)
                    asked += 1
                    assert answer.status == 403, (method, path, answer.status, told)
                    assert told["detail"].startswith("node node001 may not"), (method, path, told)
        assert asked > 90


# Whatever an agent sends

FIELDS = (
    *("applied", "digest", "actions", "failures", "results", "errands", "booted", "tried", "version", "kind", "name"),
    *("verb", "text", "check", "status", "value", "id", "state", "group", "wait", "lasts", "failed", "ageS", "lines"),
)
words = some.sampled_from(FIELDS)
numbers = some.integers(-(2**70), 2**70) | some.floats() | some.sampled_from([10**400, -0.0, 2**53])
anything = some.recursive(
    some.none() | some.booleans() | numbers | some.text(max_size=20) | some.sampled_from(["PASS", "done", "x" * 5000]),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(words, inner, max_size=5),
    max_leaves=15,
)
bodies = some.binary(max_size=80) | anything.map(lambda data: json.dumps(data).encode())


@some.composite
def requests(draw: some.DrawFn) -> tuple[str, bytes]:
    node = draw(some.sampled_from(["node001", "node002", "none", "..", "%2e%2e", "a%00b", "x" * 300]))
    path = draw(some.sampled_from(["report", "turns", "turns/x", "turns/%2f", "images/x", "certificate", "desired"]))
    body = draw(bodies)
    return f"/api/v1/nodes/{node}/{path}", body[: draw(some.integers(0, max(1, len(body))))]


@ANY
@given(sent=some.lists(requests(), min_size=5, max_size=5))
async def test_whatever_an_agent_sends_the_head_answers_and_goes_on(
    server: Served, sent: list[tuple[str, bytes]]
) -> None:
    headers = {"Authorization": f"Bearer {server.tokens['node001']}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(server.url, headers=headers) as http:
        for path, body in sent:
            async with http.post(path, data=body) as answer:
                assert answer.status < 500, (path, body, answer.status, await answer.text())
                if "/node001/" not in path:
                    assert answer.status in (400, 403, 404, 405), (path, answer.status)
        async with http.post("/api/v1/nodes/node001/report", data=b"{}") as answer:
            assert answer.status in (200, 429), await answer.text()


# Whatever a head answers


@ANY
@given(
    status=some.sampled_from([b"200 OK", b"304 No", b"204 No", b"500 Oh", b"404 No", b"999", b"", b"abc", b"1" * 9]),
    headers=some.lists(
        some.sampled_from(
            [
                b"Content-Length: 5",
                b"Content-Length: -5",
                b"Content-Length: 99999999999999",
                b"Content-Length: x",
                b"Transfer-Encoding: chunked",
                b"Content-Encoding: gzip",
                b"Content-Encoding: br",
                b"Retry-After: 0",
                b"ETag: \x00\xff",
                b"no colon",
                b"Bedplate-Active: https://127.0.0.1:1",
            ]
        )
        | some.binary(max_size=20),
        max_size=4,
    ),
    body=bodies,
)
async def test_whatever_a_head_answers_is_an_error_of_ours_or_a_state(
    tmp_path: Path, status: bytes, headers: list[bytes], body: bytes
) -> None:
    (tmp_path / "token").write_text("bph_x_y")
    head = Impostor(b"\r\n".join((b"HTTP/1.1 " + status, *headers, b"", body)))
    async with (
        head.up(None, tmp_path),
        Link(Login("node001", (head.url("http"),), token_file=str(tmp_path / "token"))) as link,
    ):
        for ask in (lambda: link.desired("", 0.0), lambda: link.report(ReportRequest())):
            with contextlib.suppress(errors.BedplateError):
                await _asked(ask)
    assert head.asked


async def _asked(ask: Callable[[], Awaitable[object]]) -> None:
    assert isinstance(await ask(), Wanted | int | None)


# Whatever a state says

PLAIN = (
    "/etc/a /etc/a/b /etc / etc/a /../x /etc/../../x /out/x /abs/x /up/x /loop/x /fifo /fifo/x /etc/. /link //etc//c"
)
LONG = ("/etc/" + "x" * 300, "/" + "d/" * 3000 + "x")
paths = some.sampled_from([*PLAIN.split(), *LONG, "", "/a\0b", "/ü/\n"])
modes = some.sampled_from(["0644", "0000", "7777", "99", "abc", "", "-1", "0o644", "777777777", "6 4", "٦٤٤"])
owners = some.sampled_from(["root", "nobody", "no-such", "", "0", "-1", "4294967295", "99999999999999999999", "a:b"])
files = some.builds(
    File,
    path=paths,
    content=some.text(max_size=30),
    mode=modes,
    owner=owners,
    group=owners,
    folder_mode=modes,
    block=some.booleans(),
    services=some.lists(some.sampled_from(["app", "", "../app", "a\0"]), max_size=2).map(tuple),
    action=some.sampled_from(["NONE", "RESTART", "RELOAD"]),
    test=some.sampled_from([(), ("true", "{}"), ("",), ("no-such-program", "{}"), ("\0",)]),
    stop_on_failure=some.booleans(),
)
names = some.sampled_from(["app", "web", "", ".", "..", "../x", "a\0b", "-rf", "x" * 300, "a b", "app@1", "ü"])
spans = some.sampled_from([-1, 0, 1, 60, 10**400, -(10**400)])
services = some.builds(
    Service,
    name=names,
    timeout=spans,
    sickness_timeout=spans,
    sickness_interval=spans,
    sickness_script=some.sampled_from(["", "/bin/true", "true", "/a\0b", "..", "/" + "x" * 5000]),
    autostart=some.booleans(),
)
flags = some.builds(
    Flag, manifest=some.sampled_from(["k.yaml", "../../x", "a\0", ""]), container=names, key=names, value=names
)
states = some.builds(
    Desired,
    node=some.just("node001"),
    revision=some.integers(0, 9),
    files=some.lists(files, max_size=5).map(tuple),
    services=some.lists(services, max_size=3).map(tuple),
    packages=some.lists(names, max_size=3).map(tuple),
    flags=some.lists(flags, max_size=2).map(tuple),
    unmanaged=some.lists(paths, max_size=2).map(tuple),
    checks=some.lists(some.builds(Check, name=names, interval_s=some.sampled_from([0.0, -1.0, 1e300])), max_size=2).map(
        tuple
    ),
    settings=some.dictionaries(some.sampled_from(["hand_edits", "hand_edit_paths"]), some.text(max_size=9), max_size=2),
)


def outside(folder: Path) -> dict[str, tuple[float, int, bytes]]:
    found = {}
    for place in sorted(folder.rglob("*")):
        about = place.lstat()
        content = place.read_bytes() if place.is_file() and not place.is_symlink() else b""
        found[str(place)] = (about.st_mtime_ns, about.st_mode, content)
    return found


def trap(folder: Path, other: Path) -> Machine:
    """A node whose links lead out of it, in every way that links can."""
    machine = Machine(folder)
    other.mkdir(parents=True)
    (other / "x").write_text("theirs")
    for name, target in (("out", str(other)), ("abs", "/etc"), ("up", "../" * 20 + str(other)[1:]), ("loop", "loop")):
        (folder / name).symlink_to(target)
    (folder / "link").symlink_to(other / "x")
    os.mkfifo(folder / "fifo")
    machine.put("/etc/kubernetes/manifests/k.yaml", "spec:\n  containers:\n  - name: app\n    command:\n    - app\n")
    return machine


@ANY
@given(first=states, second=states)
async def test_whatever_a_state_says_the_agent_lives_and_writes_nothing_outside_of_its_folder(
    tmp_path_factory: pytest.TempPathFactory, first: Desired, second: Desired
) -> None:
    place = tmp_path_factory.mktemp("hostile")
    machine = trap(place / "nodes/node001", place / "other")
    before = outside(place / "other")
    agent = Agent(machine.effects, FakeHead(first))
    await agent.recover()
    for state in (first, second, desired(revision=9)):
        # As it comes over the wire.
        told = msgspec.json.decode(msgspec.json.encode(state), type=Desired)
        await agent._settle(Wanted(told.etag, told))
        assert agent.held.is_whole <= (not sound(told)[1])
        await agent._upkeep.repair()
        await agent._upkeep._check()
    assert agent.held.is_whole
    assert outside(place / "other") == before
    assert {entry.name for entry in place.iterdir()} == {"nodes", "other"}
    assert [entry.name for entry in (place / "nodes").iterdir()] == ["node001"]


async def test_what_cannot_be_is_told_to_the_head_and_the_rest_is_done(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node")
    wrong = File(path="/etc/wrong", content="x", mode="rw-r--r--")
    fine = File(path="/etc/fine", content="fine\n")
    head = FakeHead(desired(wrong, fine, services=["../up", "app"]))
    async with running(machine, head):
        await until(lambda: len(head.told()) >= 2)
        assert machine.at("/etc/fine").read_text() == "fine\n" and "app" in machine.services.running
        assert sorted(head.told()) == [
            "file /etc/wrong could not be written",
            "service ../up could not be started",
        ]
        texts: list[Any] = [one.text for report in head.reports for one in report.failures]
        assert "the head asks for what cannot be: 'rw-r--r--' is not a mode" in texts
        assert head.applied == 0
        head.commit(desired(fine, services=["app"]))
        await until(lambda: head.applied == 2)
