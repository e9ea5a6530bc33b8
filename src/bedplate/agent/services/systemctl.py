"""A `systemctl` for programs that know no other way to a service, where PID 1 is not systemd.

In: the node's services, and which of them may be commanded. Out: a folder for the front of a PATH with a `systemctl`
that the agent answers: it starts, stops and tells about those services, and calls every other unit inactive, so that
nobody trusts files of units that do not run. It lives as long as the `async with`.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from typing import Final, NamedTuple

from bedplate.agent.services import Services

__all__ = ["Answer", "Systemctl", "Words", "words_of"]

_INACTIVE: Final = 3
_FAILED: Final = 1
_LARGEST = 4096
_CLIENT = """\
import socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
link.sendall("\\0".join(sys.argv[2:]).encode())
link.shutdown(socket.SHUT_WR)
code, _, text = b"".join(iter(lambda: link.recv(4096), b"")).decode().partition("\\n")
if text:
    print(text)
sys.exit(int(code or 1))
"""


class Words(NamedTuple):
    """What is asked: a verb and a unit without its suffix."""

    verb: str
    unit: str


class Answer(NamedTuple):
    """How the command ends, and what it prints."""

    code: int
    text: str = ""


def words_of(arguments: Sequence[str]) -> Words:
    """The verb and the unit of a command line; options say how to print, which does not matter here."""
    plain = [word for word in arguments if word and not word.startswith("-")]
    return Words(plain[0] if plain else "", plain[1].removesuffix(".service") if len(plain) > 1 else "")


class Systemctl:
    """`async with` it: the folder to put in front of PATH."""

    def __init__(self, services: Services, units: Sequence[str]) -> None:
        self._services = services
        self._units = frozenset(units)
        self._folder = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[str | None]] = set()

    async def __aenter__(self) -> str:
        self._folder = tempfile.mkdtemp(prefix="bedplate-systemctl-")
        place = os.path.join(self._folder, "socket")
        _write(self._folder, place)
        self._server = await asyncio.start_unix_server(self._serve, place)
        return self._folder

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = (await reader.read(_LARGEST)).decode(errors="replace").split("\0")
            answer = await self.answer(words_of(asked))
            writer.write(f"{answer.code}\n{answer.text}".encode())
            await writer.drain()
        except OSError:
            pass  # who asked is gone
        finally:
            writer.close()

    async def answer(self, words: Words) -> Answer:
        """What systemd would say."""
        verb, unit = words
        if verb == "daemon-reload":
            why = await self._services.reload_units()
            return Answer(_FAILED, why) if why else Answer(0)
        if unit not in self._units:
            return Answer(_INACTIVE, "inactive")
        if verb == "stop":
            why = await self._services.stop(unit)
            return Answer(_FAILED, why) if why else Answer(0)
        if verb in ("start", "restart"):
            if verb == "restart":
                await self._services.stop(unit)
            # As systemd does for a simple service: it does not wait until the service can do its work, which may need
            # what the program that asks does next.
            task = asyncio.create_task(self._services.start(unit))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return Answer(0)
        if verb in ("is-active", "status"):
            status = (await self._services.status([unit]))[unit]
            return Answer(0, "active") if status.is_up else Answer(_INACTIVE, "inactive")
        return Answer(0, {"is-enabled": "enabled", "cat": "[Service]"}.get(verb, ""))


def _write(folder: str, place: str) -> None:
    client = os.path.join(folder, "client.py")
    with open(client, "w") as stream:
        stream.write(_CLIENT)
    with open(os.path.join(folder, "systemctl"), "w") as stream:
        words = [sys.executable, "-I", "-S", client, place]
        stream.write(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        os.chmod(stream.fileno(), 0o700)
