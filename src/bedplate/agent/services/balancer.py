"""A small balancer of TCP connections for machines without nginx, which takes the file that is rendered for nginx.

Run as `python -I -S balancer.py CONF`; `--test CONF` only says whether it takes the file. In: `nginx.conf` as the role
`Kubernetes::ApiServerProxy` has it (`head/render/proxy.py`): `stream` with upstreams and servers; a directive that is
not known is refused with its line. Out: connections, passed on to the server with the fewest of them. One that cannot
be connected to gives way to the next at once; after `max_fails` failures it is left out for `fail_timeout`, and is
asked every second meanwhile: it is back as soon as it takes connections. SIGHUP reads the file again, open connections
stay; SIGTERM ends. It imports nothing of ours: it is a process of its own, started by its path.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Conf", "Listener", "Pool", "Server", "Unknown", "main", "parse"]

_TOKEN = re.compile(r"""#[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{};]|[^\s{};]+|\n""")
_SPAN = re.compile(r"(\d+)(ms|s|m|h|d)?")
_UNITS_S = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PLACE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):(?P<port>\d{1,5})")
_LISTEN = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):)?(?P<port>\d{1,5})")
_IGNORED = frozenset(
    ("include", "worker_processes", "worker_rlimit_nofile", "pid", "error_log", "user", "worker_connections")
)
"""About nginx's own processes and files: a process that has no workers needs none of them."""
_CHECK_S = 1.0
_PIECE = 1 << 16
_BACKLOG = 511


class Unknown(ValueError):
    """The file is not one that this program can do as it says."""


class Server(NamedTuple):
    """Where connections go."""

    host: str
    port: int
    max_fails: int = 1
    fail_timeout_s: float = 10.0

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.port


class Listener(NamedTuple):
    """Where connections come from, and the name of the servers that they go to."""

    host: str
    port: int
    upstream: str


class Conf(NamedTuple):
    """What a file says."""

    listeners: tuple[Listener, ...] = ()
    upstreams: Mapping[str, tuple[Server, ...]] = {}
    connect_timeout_s: float = 60.0
    silent_s: float = 600.0


class _Directive(NamedTuple):
    words: tuple[str, ...]
    line: int
    body: tuple[_Directive, ...] | None

    @property
    def name(self) -> str:
        return self.words[0]

    def value(self) -> str:
        if len(self.words) != 2:
            raise Unknown(f'line {self.line}: "{self.name}" takes one value')
        return self.words[1]


# The file


def parse(text: str) -> Conf:
    """What a file says. Raises `Unknown`, with the line, for what this program would not do."""
    streams = []
    for directive in _block(_tokens(text), is_top=True):
        if directive.name == "stream" and directive.body is not None:
            streams.append(directive)
        elif directive.name == "events" and directive.body is not None:
            _known(directive.body)
        else:
            _known([directive])
    if not streams:
        raise Unknown('there is no "stream"')
    conf = Conf()
    for stream in streams:
        conf = _stream(conf, stream.body or ())
    for listener in conf.listeners:
        if not conf.upstreams.get(listener.upstream):
            raise Unknown(f'there is no server in upstream "{listener.upstream}"')
    return conf


def _known(directives: Iterable[_Directive]) -> None:
    for directive in directives:
        if directive.name not in _IGNORED or directive.body is not None:
            raise Unknown(f'line {directive.line}: unknown directive "{directive.name}"')


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line = 1
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif not token.startswith("#"):
            yield token, line
            line += token.count("\n")
    yield "", line


def _block(tokens: Iterator[tuple[str, int]], *, is_top: bool = False) -> tuple[_Directive, ...]:
    directives, words, began = [], list[str](), 0
    for token, line in tokens:
        if token in (";", "{") and not words:
            raise Unknown(f'line {line}: unexpected "{token}"')
        if token in (";", "{"):
            body = _block(tokens) if token == "{" else None
            directives.append(_Directive(tuple(words), began, body))
            words = []
        elif token in ("}", ""):
            if words or (token == "}") == is_top:
                raise Unknown(f"line {line}: unexpected {token or 'end of the file'}")
            return tuple(directives)
        else:
            began = began if words else line
            words.append(token[1:-1] if token[0] in "\"'" and len(token) > 1 else token)
    return tuple(directives)


def _stream(conf: Conf, directives: Iterable[_Directive]) -> Conf:
    listeners, upstreams = list(conf.listeners), dict(conf.upstreams)
    for directive in directives:
        if directive.name == "upstream" and directive.body is not None:
            upstreams[directive.value()] = tuple(_servers(directive.body))
        elif directive.name == "server" and directive.body is not None:
            listeners += _listeners(directive)
        elif directive.name == "proxy_connect_timeout" and directive.body is None:
            conf = conf._replace(connect_timeout_s=_span(directive, directive.value()))
        elif directive.name == "proxy_timeout" and directive.body is None:
            conf = conf._replace(silent_s=_span(directive, directive.value()))
        elif directive.name != "proxy_socket_keepalive" or directive.value() not in ("on", "off"):
            raise Unknown(f'line {directive.line}: unknown directive "{directive.name}"')
    return conf._replace(listeners=tuple(listeners), upstreams=upstreams)


def _servers(directives: Iterable[_Directive]) -> Iterator[Server]:
    for directive in directives:
        if directive.name == "server" and directive.body is None and len(directive.words) > 1:
            host, port = _place(directive, _PLACE, directive.words[1])
            server = Server(host, port)
            for word in directive.words[2:]:
                name, _, value = word.partition("=")
                if name == "max_fails" and value.isdecimal():
                    server = server._replace(max_fails=int(value))
                elif name == "fail_timeout":
                    server = server._replace(fail_timeout_s=_span(directive, value))
                else:
                    raise Unknown(f'line {directive.line}: invalid parameter "{word}"')
            yield server
        elif directive.name not in ("zone", "least_conn") or directive.body is not None:
            raise Unknown(f'line {directive.line}: unknown directive "{directive.name}"')


def _listeners(server: _Directive) -> list[Listener]:
    listens, upstream = [], ""
    for directive in server.body or ():
        if directive.name == "listen" and directive.body is None:
            listens.append(_place(directive, _LISTEN, directive.value()))
        elif directive.name == "proxy_pass" and directive.body is None:
            upstream = directive.value()
        else:
            raise Unknown(f'line {directive.line}: unknown directive "{directive.name}"')
    if not upstream:
        raise Unknown(f'line {server.line}: a server needs "proxy_pass"')
    return [Listener(host, port, upstream) for host, port in listens]


def _place(directive: _Directive, pattern: re.Pattern[str], text: str) -> tuple[str, int]:
    match = pattern.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise Unknown(f'line {directive.line}: "{text}" is not an address with a port')
    return (match["host"] or "0.0.0.0").strip("[]"), int(match["port"])


def _span(directive: _Directive, text: str) -> float:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise Unknown(f'line {directive.line}: "{text}" is not a time')
    return int(match[1]) * _UNITS_S[match[2] or ""]


# Who is next


class _Health:
    """What is known of one server, also by those who have it in another list."""

    def __init__(self) -> None:
        self.busy = 0
        self.fails = 0
        self.failed_s = 0.0
        self.out_until_s = 0.0


class Pool:
    """The servers of one upstream, and which of them is next. `now` is a clock that only goes forward."""

    def __init__(self, servers: Sequence[Server], known: dict[tuple[str, int], _Health], now: Callable[[], float]):
        self._servers = servers
        self._now = now
        self._turn = 0
        self._known = {server.place: known.setdefault(server.place, _Health()) for server in servers}

    def order(self) -> list[Server]:
        """All of them: first those that are in, the least busy before the others, then those that are left out."""
        self._turn += 1
        start = self._turn % len(self._servers)
        rotated = [*self._servers[start:], *self._servers[:start]]
        return sorted(rotated, key=lambda server: (self.is_out(server), self._known[server.place].busy))

    def is_out(self, server: Server) -> bool:
        return self._now() < self._known[server.place].out_until_s

    def out(self) -> list[Server]:
        """Those that are left out now."""
        return [server for server in self._servers if self.is_out(server)]

    def failed(self, server: Server) -> bool:
        """It could not be connected to; whether it is left out from now on."""
        health, now = self._known[server.place], self._now()
        if health.fails < server.max_fails and now - health.failed_s > server.fail_timeout_s:
            health.fails = 0
        health.fails, health.failed_s = health.fails + 1, now
        if not server.max_fails or health.fails < server.max_fails:
            return False
        was_out, health.out_until_s = self.is_out(server), now + server.fail_timeout_s
        return not was_out

    def answered(self, server: Server) -> None:
        health = self._known[server.place]
        health.fails, health.out_until_s = 0, 0.0

    @contextlib.contextmanager
    def busy(self, server: Server) -> Iterator[None]:
        health = self._known[server.place]
        health.busy += 1
        try:
            yield
        finally:
            health.busy -= 1


# Connections


class _Balancer:
    def __init__(self, path: str) -> None:
        self._path = path
        self._conf = Conf()
        self._open: dict[tuple[str, int], asyncio.Server] = {}
        self._pools: dict[str, Pool] = {}
        self._upstreams: dict[tuple[str, int], str] = {}
        self._health: dict[tuple[str, int], _Health] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def live(self) -> None:
        loop = asyncio.get_running_loop()
        ended, reread = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        loop.add_signal_handler(signal.SIGHUP, reread.set)
        await self._take(parse(_read(self._path)))
        checking = asyncio.create_task(self._check())
        _tell_ready()
        waits = asyncio.create_task(ended.wait())
        while not ended.is_set():
            again = asyncio.create_task(reread.wait())
            await asyncio.wait((waits, again), return_when=asyncio.FIRST_COMPLETED)
            again.cancel()
            if reread.is_set():
                reread.clear()
                await self._read_again()
        checking.cancel()
        for server in self._open.values():
            server.close()
        for task in self._tasks:
            task.cancel()

    async def _read_again(self) -> None:
        try:
            await self._take(parse(_read(self._path)))
        except (Unknown, OSError) as err:
            _say(f"{self._path} is not taken, what was before goes on: {err}")

    async def _take(self, conf: Conf) -> None:
        """Listen as the file says. Ports that stay are not closed in between; raises OSError for one that is taken."""
        places = {(listener.host, listener.port): listener.upstream for listener in conf.listeners}
        opened = {}
        try:
            for place in places.keys() - self._open.keys():
                opened[place] = await asyncio.start_server(
                    self._accepting(place), sock=_socket(*place), backlog=_BACKLOG, limit=_PIECE
                )
        except OSError:
            for server in opened.values():
                server.close()
            raise
        for place in self._open.keys() - places.keys():
            self._open.pop(place).close()
        self._open |= opened
        now = asyncio.get_running_loop().time
        used = {server.place for servers in conf.upstreams.values() for server in servers}
        self._health = {place: health for place, health in self._health.items() if place in used}
        self._pools = {name: Pool(servers, self._health, now) for name, servers in conf.upstreams.items() if servers}
        self._upstreams, self._conf = places, conf

    def _accepting(self, place: tuple[str, int]) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(place, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accept

    async def _serve(self, place: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            pool = self._pools.get(self._upstreams.get(place, ""))
            if pool is not None:
                await self._pass_on(pool, reader, writer)
        finally:
            writer.close()

    async def _pass_on(self, pool: Pool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for server in pool.order():
            with pool.busy(server):
                link = await self._connected(pool, server)
                if link is None:
                    continue
                _keep_alive(writer)
                try:
                    await _pump(reader, writer, *link, self._conf.silent_s)
                finally:
                    link[1].close()
                return
        _say("no server takes connections")

    async def _connected(self, pool: Pool, server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        try:
            async with asyncio.timeout(self._conf.connect_timeout_s):
                link = await asyncio.open_connection(server.host, server.port, limit=_PIECE)
        except (OSError, TimeoutError) as err:
            if pool.failed(server):
                why = str(err) or f"no connection within {self._conf.connect_timeout_s:g} s"
                _say(f"{server.host}:{server.port} is left out for {server.fail_timeout_s:g} s: {why}")
            return None
        pool.answered(server)
        _keep_alive(link[1])
        return link

    async def _check(self) -> None:
        """Ask those that are left out."""
        while True:
            await asyncio.sleep(_CHECK_S)
            for pool in list(self._pools.values()):
                await asyncio.gather(*(self._ask(pool, server) for server in pool.out()))

    async def _ask(self, pool: Pool, server: Server) -> None:
        link = await self._connected(pool, server)
        if link is not None:
            link[1].close()
            _say(f"{server.host}:{server.port} takes connections again")


async def _pump(
    client: asyncio.StreamReader,
    to_client: asyncio.StreamWriter,
    server: asyncio.StreamReader,
    to_server: asyncio.StreamWriter,
    silent_s: float,
) -> None:
    """Both directions, until both have ended, one has failed, or nothing was said for too long."""
    loop = asyncio.get_running_loop()
    last_s = [loop.time()]

    async def one(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(silent_s):
                    piece = await source.read(_PIECE)
            except TimeoutError:
                if loop.time() - last_s[0] < silent_s:
                    continue
                raise
            last_s[0] = loop.time()
            if not piece:
                break
            target.write(piece)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()

    both = [asyncio.create_task(one(client, to_server)), asyncio.create_task(one(server, to_client))]
    try:
        await asyncio.gather(*both)
    except (OSError, TimeoutError):
        pass  # who is left sees the end of the connection
    finally:
        for task in both:
            task.cancel()


def _socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind((host, port))
    except OSError as err:
        opened.close()
        raise OSError(err.errno, f"port {port}: {(err.strerror or str(err)).lower()}") from err
    return opened


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    link = writer.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _tell_ready() -> None:
    """Say that the ports are open, to who started this."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        if path.startswith("@"):
            link.sendto(b"READY=1", f"\0{path[1:]}")
            return
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            # The path of a socket is at most 107 bytes long; this way it always is.
            link.sendto(b"READY=1", f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        finally:
            os.close(folder)


def _read(path: str) -> str:
    with open(path) as stream:
        return stream.read()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _test(path: str) -> None:
    """Raises `Unknown` for a file that is not taken, and for a server whose name leads to no address."""
    for name, servers in parse(_read(path)).upstreams.items():
        for server in servers:
            try:
                socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as err:
                raise Unknown(f'host not found in upstream "{name}": {server.host}: {err}') from err


def main(words: Sequence[str]) -> int:
    """The program: its exit code."""
    try:
        if words[0] == "--test":
            _test(words[1])
        else:
            asyncio.run(_Balancer(words[0]).live())
    except (Unknown, OSError) as err:
        _say(str(err))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
