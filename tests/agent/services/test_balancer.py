"""The agent's own balancer: it takes the file that is rendered for nginx, and does with it what nginx does."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.head.render import rooms
from tests.servers import free_port
from tests.waiting import until

from bedplate.agent.services import balancer
from bedplate.agent.services.balancer import Listener, Pool, Server, Unknown, parse
from bedplate.head.render import proxy

PROGRAM = [sys.executable, "-I", "-S", str(Path(balancer.__file__))]
PORTS = st.integers(1, 65535)
HOSTS = st.from_regex(r"[a-z][a-z0-9.-]{0,20}[a-z0-9]|10\.\d\.\d\.\d|\[fd00::[1-9]\]", fullmatch=True)


def rendered(*listeners: tuple[int, Sequence[int]]) -> str:
    """The file for ports of this machine, each with the ports of its servers."""
    return proxy.nginx_conf(
        proxy.Listener(f"kube-{port}", port, tuple(f"127.0.0.1:{server}" for server in servers))
        for port, servers in listeners
    )


# The file


def test_it_takes_what_is_rendered_for_a_whole_site() -> None:
    conf = parse(rooms.file_of(rooms.full(), "node004", proxy.CONF).content)
    assert conf.listeners == (Listener("0.0.0.0", 10443, "kube-default-api"),)
    servers = conf.upstreams["kube-default-api"]
    assert servers[0].place == ("10.141.0.1", 6443) and len(servers) > 1
    assert {(server.max_fails, server.fail_timeout_s) for server in servers} == {(3, 10.0)}
    assert (conf.connect_timeout_s, conf.silent_s) == (2.0, 86400.0)


@given(st.lists(st.tuples(PORTS, st.lists(st.tuples(HOSTS, PORTS), min_size=1, max_size=5)), max_size=4))
def test_it_takes_whatever_is_rendered(rows: list[tuple[int, list[tuple[str, int]]]]) -> None:
    entries = [
        proxy.Listener(f"kube-{number}", port, tuple(f"{host}:{target}" for host, target in targets))
        for number, (port, targets) in enumerate(rows)
    ]
    conf = parse(proxy.nginx_conf(entries))
    assert {listener.port for listener in conf.listeners} == {entry.port for entry in entries}
    for entry in entries:
        servers = conf.upstreams[entry.name]
        assert [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port, *_ in servers] == list(
            entry.targets
        )
    assert any(":" in listener.host for listener in conf.listeners) == any(
        target.startswith("[") for entry in entries for target in entry.targets
    )


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("proxy_pass", "proxy_gass", 'line {}: unknown directive "proxy_gass"'),
        ("least_conn", "hash $remote_addr", 'line {}: unknown directive "hash"'),
        ("max_fails=3", "weight=3", 'line {}: invalid parameter "weight=3"'),
        ("fail_timeout=10s", "fail_timeout=soon", 'line {}: "soon" is not a time'),
        ("listen 10443", "listen 70000", 'line {}: "70000" is not an address with a port'),
        ("127.0.0.1:6443", "127.0.0.1", 'line {}: "127.0.0.1" is not an address with a port'),
        ("proxy_pass kube-10443", "proxy_pass other", 'there is no server in upstream "other"'),
        ("stream {", "http {", 'line {}: unknown directive "http"'),
        ("worker_processes auto;", "load_module x.so;", 'line {}: unknown directive "load_module"'),
        ("events {", "events {{", 'line {}: unexpected "{"'),
        ("stream {", "events {", "unknown directive"),
        ("    }\n}\n", "    }\n", "unexpected end of the file"),
        ("    }\n}\n", "    }\n}\n}\n", "unexpected }"),
    ],
)
def test_what_it_would_not_do_is_refused_with_its_line(tmp_path: Path, old: str, new: str, why: str) -> None:
    text = rendered((10443, [6443]))
    assert old in text
    file = tmp_path / "nginx.conf"
    file.write_text(text)
    assert subprocess.run([*PROGRAM, "--test", file], timeout=120, check=False).returncode == 0
    file.write_text(text.replace(old, new))
    done = subprocess.run([*PROGRAM, "--test", file], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    line = text[: text.index(old)].count("\n") + 1
    assert why.replace("{}", str(line)) in done.stderr and "Traceback" not in done.stderr


def test_a_file_that_says_nothing_is_refused() -> None:
    with pytest.raises(Unknown, match='there is no "stream"'):
        parse("")


@given(st.text("#{};\"' \\\nab=:", max_size=40))
def test_whatever_the_file_says_it_is_taken_or_refused(text: str) -> None:
    with contextlib.suppress(Unknown):
        parse(text)
    with contextlib.suppress(Unknown):
        parse(f"stream {{ {text} }}")


# Who is next


def test_a_server_that_failed_three_times_is_left_out_for_its_time_or_until_it_answers() -> None:
    now = [100.0]
    first, second = Server("a", 1, 3, 10.0), Server("b", 1, 3, 10.0)
    pool = Pool([first, second], {}, lambda: now[0])
    assert [pool.failed(first), pool.failed(first)] == [False, False] and not pool.out()
    assert pool.failed(first) and pool.out() == [first]
    assert not pool.failed(first), "it is told once"
    assert [pool.order() for _ in range(3)] == [[second, first]] * 3, "the last resort"
    now[0] += 9.9
    assert pool.out() == [first]
    now[0] += 0.2
    assert pool.out() == []
    assert pool.failed(first), "it failed within its time again"
    pool.answered(first)
    assert pool.out() == []
    assert not pool.failed(first)
    now[0] += 10.1
    assert not pool.failed(first) and not pool.failed(first), "what is long ago does not count"


def test_the_least_busy_server_is_next_and_equal_ones_take_turns() -> None:
    servers = [Server("a", 1), Server("b", 1), Server("c", 1)]
    pool = Pool(servers, {}, lambda: 0.0)
    assert {pool.order()[0].host for _ in range(3)} == {"a", "b", "c"}
    with pool.busy(servers[0]), pool.busy(servers[1]):
        assert {pool.order()[0].host for _ in range(6)} == {"c"}


# The program


class Backend:
    """A server that says its port to whoever says something, and can be killed with its connections."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def kill(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                writer.write(f"{self.port} ".encode() + line)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()


class Site:
    """Three servers, and the program before them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "nginx.conf"
        self.port = free_port()
        self.backends = [Backend(free_port()) for _ in range(3)]
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, *ports: int) -> None:
        servers = [backend.port for backend in self.backends]
        self.put(rendered(*((port, servers) for port in ports)))

    def put(self, text: str) -> None:
        """Replace the file whole, as agents do."""
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.rename(self.file)

    async def start(self) -> None:
        for backend in self.backends:
            await backend.start()
        self.write(self.port)
        self.process = subprocess.Popen([*PROGRAM, self.file])
        await until(lambda: is_open(self.port), "the port is open")

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        for backend in self.backends:
            with contextlib.suppress(AssertionError):
                backend.kill()
        return self.process.wait(60)

    async def asked(self, port: int = 0) -> int:
        """The port of the server that answered. Raises OSError where none did."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port)
        try:
            writer.write(b"hello\n")
            answer = await reader.readline()
            if not answer:
                raise ConnectionResetError("no answer")
            return int(answer.split()[0])
        finally:
            writer.close()


async def is_open(port: int) -> bool:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.start()
    yield made
    assert made.stop() == 0


async def test_servers_are_killed_one_after_another_under_load_and_no_request_fails_twice(site: Site) -> None:
    answers: dict[int, int] = {backend.port: 0 for backend in site.backends}
    failed: list[OSError] = []
    is_over = asyncio.Event()

    async def client() -> None:
        while not is_over.is_set():
            try:
                try:
                    port = await site.asked()
                except OSError:
                    port = await site.asked()
                answers[port] += 1
            except OSError as err:
                failed.append(err)

    async def answered(*backends: Backend) -> None:
        before = dict(answers)
        await until(lambda: all(answers[each.port] >= before[each.port] + 10 for each in backends), "they answer")

    clients = [asyncio.create_task(client()) for _ in range(4)]
    first, second, third = site.backends
    await answered(first, second, third)
    first.kill()
    await answered(second, third)
    second.kill()
    await answered(third)
    await first.start()
    await second.start()
    await answered(first, second)
    third.kill()
    await answered(first, second)
    is_over.set()
    await asyncio.gather(*clients)
    assert failed == []


async def test_a_connection_is_passed_on_whole_and_its_end_too(site: Site) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    lines = [b"%d" % number + b"x" * 10_000 for number in range(500)]

    async def write() -> None:
        for line in lines:
            writer.write(line + b"\n")
            await writer.drain()
        writer.write_eof()

    writing = asyncio.create_task(write())
    answer = await reader.read()
    await writing
    assert [line.split()[1] for line in answer.splitlines()] == lines
    writer.close()


async def test_another_file_opens_and_closes_ports_and_open_connections_stay(site: Site) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(b"one\n")
    assert (await reader.readline()).endswith(b"one\n")
    other = free_port()
    site.write(other)
    assert site.process is not None
    site.process.send_signal(signal.SIGHUP)
    await until(lambda: is_open(other), "the new port is open")
    assert await site.asked(other) in {backend.port for backend in site.backends}
    assert not await is_open(site.port)
    writer.write(b"two\n")
    assert (await reader.readline()).endswith(b"two\n"), "whoever talked goes on"
    writer.close()
    # A file that makes no sense, and a port that somebody else has, change nothing.
    site.put("stream {")
    site.process.send_signal(signal.SIGHUP)
    site.write(other, site.backends[0].port)
    site.process.send_signal(signal.SIGHUP)
    for _ in range(20):
        await site.asked(other)
    assert site.process.poll() is None


async def test_a_server_that_is_back_is_used_before_its_time_is_over(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.start()
    try:
        site.put(site.file.read_text().replace("fail_timeout=10s", "fail_timeout=1d"))
        assert site.process is not None
        site.process.send_signal(signal.SIGHUP)
        for backend in site.backends:
            backend.kill()
        for _ in range(9):
            with contextlib.suppress(OSError):
                await site.asked()
        for backend in site.backends:
            await backend.start()
        seen: set[int] = set()

        async def all_answer() -> bool:
            with contextlib.suppress(OSError):
                seen.add(await site.asked())
            return len(seen) == 3

        await until(all_answer, "all are used again")
    finally:
        site.stop()


async def test_a_port_that_somebody_has_is_told(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "nginx.conf"
    server = await asyncio.start_server(lambda reader, writer: None, "0.0.0.0", port)
    file.write_text(rendered((port, [1])))
    try:
        process = await asyncio.create_subprocess_exec(*PROGRAM, file, stderr=asyncio.subprocess.PIPE)
        _, said = await process.communicate()
    finally:
        server.close()
    assert process.returncode == 1
    assert f"port {port}: address already in use\n" in said.decode() and b"Traceback" not in said
