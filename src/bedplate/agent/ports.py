"""Who has a port of this machine, and which line of which file made it so.

In: a port, the services that may have it. Out: a sentence with its remedy, or nothing when the port is free or theirs.
The kernel knows the process, the process its service; for programs that usually serve web pages the line of their
configuration is looked up, because that is what people have to change.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bedplate.agent.files import FileProblem, Root
from bedplate.agent.services import unit

__all__ = ["taken"]

_PROC = "/proc"
_LISTENS = "0A"
_MARK = b"BEDPLATE_SERVICE="
_FILES = {
    "apache2": ("/etc/apache2/ports.conf", "/etc/apache2/sites-enabled/*", "/etc/apache2/conf-enabled/*"),
    "httpd": ("/etc/httpd/conf.d/ssl.conf", "/etc/httpd/conf/httpd.conf", "/etc/httpd/conf.d/*.conf"),
    "nginx": ("/etc/nginx/nginx.conf", "/etc/nginx/conf.d/*.conf", "/etc/nginx/sites-enabled/*"),
    "lighttpd": ("/etc/lighttpd/lighttpd.conf", "/etc/lighttpd/conf-enabled/*"),
    "haproxy": ("/etc/haproxy/haproxy.cfg",),
    "caddy": ("/etc/caddy/Caddyfile",),
}
"""Where the usual programs say what they listen on."""


class _Holder(NamedTuple):
    """A process that listens. `service` is empty where no service manager started it."""

    pid: int
    program: str
    service: str
    command: str

    @property
    def name(self) -> str:
        return self.service or self.program


def taken(root: Root, port: int, services: Sequence[str], *, proc: str = _PROC) -> str:
    """Who else has a port; empty: nobody, or one of the services that should."""
    sockets = _sockets(port, proc)
    holders = [_holder(pid, proc) for pid in _owners(sockets, proc)] if sockets else []
    strangers = [holder for holder in holders if not {holder.service, holder.program} & set(services)]
    if not strangers:
        # Also when the owner is hidden from us: then the program that needs the port says so itself.
        return ""
    first = strangers[0]
    place = _line(root, first.program, port)
    if place:
        return f"port {port} is in use by {first.name}: {place}; comment that line out and restart {first.name}"
    if first.service:
        file = _unit_file(root, first.service)
        text = f"port {port} is in use by the service {first.service}" + (f" ({file})" if file else "")
        return f"{text}, process {first.pid}: {first.command}; stop it, or choose another port"
    return f"port {port} is in use by process {first.pid}: {first.command}; stop it, or choose another port"


def _sockets(port: int, proc: str) -> set[str]:
    """The numbers of the sockets that listen on a port."""
    numbers = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"{proc}/net/{table}") as stream:
            for line in stream:
                words = line.split()
                if len(words) > 9 and words[3] == _LISTENS and words[1].rpartition(":")[2] == f"{port:04X}":
                    numbers.add(words[9])
    return numbers


def _owners(sockets: Iterable[str], proc: str) -> Iterator[int]:
    """The processes that have one of the sockets, the oldest first: a server before its workers."""
    links = {f"socket:[{number}]" for number in sockets}
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdecimal()):
        folder = f"{proc}/{pid}/fd"
        with contextlib.suppress(OSError):
            if any(_target(f"{folder}/{name}") in links for name in os.listdir(folder)):
                yield pid


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _holder(pid: int, proc: str) -> _Holder:
    words = _read(f"{proc}/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").split()
    program = _read(f"{proc}/{pid}/comm").decode(errors="replace").strip()
    return _Holder(pid, program, _service(pid, proc), " ".join(words)[:200] or program)


def _service(pid: int, proc: str) -> str:
    """The service that a process belongs to, as our own supervisor or systemd marked it."""
    for variable in _read(f"{proc}/{pid}/environ").split(b"\0"):
        if variable.startswith(_MARK):
            return os.path.basename(variable[len(_MARK) :].decode(errors="replace"))
    names = re.findall(r"/([^/\n]+)\.service(?:/|$)", _read(f"{proc}/{pid}/cgroup").decode(errors="replace"), re.M)
    return names[-1] if names else ""


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(1 << 16)
    except OSError:
        return b""


def _line(root: Root, program: str, port: int) -> str:
    """The place where a program is told to listen on a port."""
    pattern = re.compile(rf"(?<![\d.]){port}(?!\d)")
    for form in _FILES.get(program, ()):
        below = root.folder.rstrip("/")
        for place in sorted(glob.glob(below + form)):
            for number, line in enumerate(_read(place).decode(errors="replace").splitlines(), start=1):
                if pattern.search(line.split("#")[0]):
                    return f"{place[len(below) :]}, line {number}, says {line.strip()!r}"
    return ""


def _unit_file(root: Root, service: str) -> str:
    try:
        loaded = unit.load(root, service)
    except (unit.UnitProblem, FileProblem):
        return ""
    return loaded.files[0] if loaded is not None else ""
