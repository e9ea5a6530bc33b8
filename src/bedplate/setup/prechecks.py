"""Checks before a deployment changes anything: the DNS configuration and the package index of this machine.

In: `/etc/resolv.conf` and the package manager of the head node. Out: stages that only look; a failing one stops the
setup before anything is changed. `--skip-dns-configuration-check` and `--skip-package-manager-update-check` remove
them.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import secrets
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

from bedplate.core import errors
from bedplate.setup.engine import Context, Stage

__all__ = ["REFRESH", "nameservers", "query", "refresh_command", "stages"]

RESOLV_CONF = Path("/etc/resolv.conf")
REFRESH = (
    ("apt-get", ("update", "-qq")),
    ("dnf", ("makecache", "--quiet")),
    ("zypper", ("--quiet", "refresh")),
)
"""How each package manager refreshes its index."""
_ANSWER_S = 3.0
_REFRESH_S = 300.0


def stages(
    resolv_conf: Path = RESOLV_CONF, *, port: int = 53, answer_s: float = _ANSWER_S, path: str | None = None
) -> list[Stage]:
    """The two checks: name servers have `answer_s` to answer, `path` is where the package manager is looked for."""
    return [
        Stage(
            "Check DNS Configuration",
            "kubernetes",
            functools.partial(_check_dns, resolv_conf, port, answer_s),
            needs=(),
            inputs=str(resolv_conf),
            tags=frozenset({"dns-check"}),
        ),
        Stage(
            "Check Package Manager Update",
            "kubernetes",
            functools.partial(_check_packages, path),
            needs=(),
            inputs="the package repositories of this machine",
            tags=frozenset({"package-manager-check"}),
        ),
    ]


def nameservers(text: str) -> list[str]:
    """The name servers of a resolv.conf."""
    rows = [line.split() for line in text.splitlines()]
    return [row[1] for row in rows if len(row) > 1 and row[0] == "nameserver"]


async def _check_dns(file: Path, port: int, answer_s: float, context: Context) -> None:
    try:
        servers = nameservers(await asyncio.to_thread(file.read_text))
    except OSError as err:
        raise errors.Invalid(f"{file} cannot be read: {err.strerror}", hint=_DNS_HINT) from err
    if not servers:
        raise errors.Invalid(f"{file} has no name server", hint=_DNS_HINT)
    name = context.answers["kubernetes"]["fqdn"]
    failures = []
    for server in servers:
        failure = await _asked(server, port, name, answer_s)
        if not failure:
            context.say(f"{server} answers")
            return
        failures.append(f"{server}: {failure}")
    raise errors.Unavailable("no name server answers: " + "; ".join(failures), hint=_DNS_HINT)


_DNS_HINT = "correct the DNS configuration of this machine, or give --skip-dns-configuration-check"


def query(name: str, number: int) -> bytes:
    """A DNS query for the address of a name."""
    labels = b"".join(bytes([len(label)]) + label.encode("ascii") for label in name.split(".") if label)
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)


async def _asked(server: str, port: int, name: str, answer_s: float) -> str:
    """Why the server does not answer; nothing if it does. That it knows no such name is an answer."""
    try:
        ipaddress.ip_address(server.partition("%")[0])
    except ValueError:
        return "not an address"
    number = secrets.randbelow(65536)
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[bytes] = loop.create_future()
    try:
        transport, _ = await loop.create_datagram_endpoint(lambda: _Listener(answered), remote_addr=(server, port))
    except OSError as err:
        return str(err.strerror or err)
    try:
        transport.sendto(query(name, number))
        async with asyncio.timeout(answer_s):
            answer = await answered
    except TimeoutError:
        return "no answer"
    except OSError as err:
        return str(err.strerror or err)
    finally:
        transport.close()
    return "" if answer[:2] == struct.pack(">H", number) else "an answer to another question"


class _Listener(asyncio.DatagramProtocol):
    def __init__(self, answered: asyncio.Future[bytes]) -> None:
        self._answered = answered

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self._answered.done():
            self._answered.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self._answered.done():
            self._answered.set_exception(exc)


def refresh_command(path: str | None = None) -> Sequence[str]:
    """The command that refreshes the package index here; empty where there is no package manager."""
    for program, words in REFRESH:
        place = shutil.which(program, path=path)
        if place is not None:
            return [place, *words]
    return []


async def _check_packages(path: str | None, context: Context) -> None:
    command = refresh_command(path)
    if not command:
        context.say("No package manager was found on this machine; nothing to refresh")
        return
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(_REFRESH_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        raise errors.Unavailable(f"{' '.join(command)} did not end in {_REFRESH_S:.0f} s", hint=_HINT) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = printed.decode(errors="replace").strip()
    context.log.info(text or "no output")
    if process.returncode:
        last = text.splitlines()[-1] if text else "it printed nothing"
        raise errors.Unavailable(f"{' '.join(command)} failed with code {process.returncode}: {last}", hint=_HINT)


_HINT = "correct the package repositories of this machine, or give --skip-package-manager-update-check"
