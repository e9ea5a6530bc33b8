"""From a target to a backend: a daemon over REST, or the folder's own head in this process.

In: a `Target`. Out: an open backend. Whoever holds the lock of a data folder and serves it is asked over REST, with the
folder's credential; a folder nobody holds is opened here, under its lock. A shell that is not a script serves it on a
socket to other shells (`head/sharing`); when it ends, one of those takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.head import sharing
from bedplate.head.folder import datafolder
from bedplate.ui.backend import Backend
from bedplate.ui.cmsh import usersettings
from bedplate.ui.cmsh.usersettings import Identity, Target

if TYPE_CHECKING:
    from aiohttp import web

    from bedplate.head.daemon import Service

__all__ = ["Reached", "reach"]

_LOCAL_USER = "admin"
"""Whoever can open the folder could use its administrator's credential as well."""

_PATIENCE_S = 20.0
_SILENT_S = 2.0
_ATTEMPTS = 4
"""Enough for a head that restarts its listener; who mistyped an address does not want to wait for more."""

_LOOK_S = 0.1


class Reached(NamedTuple):
    """A backend; `own` says whether it made a revision, so that others' can be told apart."""

    backend: Backend
    own: Callable[[int], bool]


@contextlib.asynccontextmanager
async def reach(
    target: Target,
    say: Callable[[str], None],
    *,
    shares: bool = False,
    is_served: bool = False,
    clock: Clock | None = None,
) -> AsyncIterator[Reached]:
    """Open what the target names; `say` takes lines about a head that is waited for. `shares` lets other shells use the
    head of a folder as long as this one has it: for one that is left open, not for a script, which ends. `is_served`:
    a daemon serves the folder, and is waited for; the folder is not opened here, which would keep it from starting.

    Raises `Unavailable`, `NotFound`, `Invalid`, `Denied`.
    """
    if target.urls:
        async with _remote(target.urls, target.identity, say) as reached:
            yield reached
        return
    assert target.data is not None, "a target is one or the other"
    turn = _Turn(datafolder.Folder.find(target.data), say, clock or SystemClock())
    async with contextlib.AsyncExitStack() as opened:
        yield await _entered(target.data, target.identity, turn, opened, shares=shares, is_served=is_served)


async def _entered(
    data: pathlib.Path,
    identity: Identity,
    turn: _Turn,
    opened: contextlib.AsyncExitStack,
    *,
    shares: bool,
    is_served: bool,
) -> Reached:
    async def succeed() -> None:
        # Another shell may be faster; then that one serves the same socket.
        with contextlib.suppress(errors.BedplateError):
            await opened.enter_async_context(_in_process(data, shares=True))

    while True:
        url = await turn.wait()
        if url:
            whole = identity.over(usersettings.beside(data))
            # Only a shell is succeeded by a shell: a daemon that ends starts again, and must find its folder free.
            turn.succeed = succeed if url.startswith("http+unix:") else None
            # A daemon that starts again may listen elsewhere, and says so in its folder.
            return await opened.enter_async_context(_remote((url,), whole, turn.say, turn.served))
        if is_served:
            if turn.is_over:
                raise errors.Unavailable(
                    f"no daemon serves {data}", hint=f"start it with bedplate head serve --data {data}, then try again"
                )
            await turn.pause()
            continue
        try:
            return await opened.enter_async_context(_in_process(data, shares=shares))
        except errors.Unavailable:
            # Another process took the lock first.
            if turn.is_over:
                raise
            await turn.pause()


class _Turn:
    """Waiting until a folder is served, or free: a daemon that starts will say where it is, a script will end."""

    def __init__(self, folder: datafolder.Folder, say: Callable[[str], None], clock: Clock) -> None:
        self._folder = folder
        self.say = say
        self._clock = clock
        self._began = clock.monotonic()
        self._is_told = False
        self.succeed: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Takes the place of a shell that has ended."""
        self._succession: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() - self._began >= _PATIENCE_S

    async def wait(self) -> str:
        """Where the folder is served; empty when nobody holds it. Raises `Unavailable` when neither comes true."""
        while True:
            holder = self._folder.holder()
            if holder is None or holder.url:
                return holder.url if holder is not None else ""
            who = f"{self._folder.path} is in use by process {holder.pid or '(not known)'}"
            if self.is_over:
                raise errors.Unavailable(
                    f"{who}, which does not serve other clients",
                    hint=f"leave that shell; bedplate head serve --data {self._folder.path} serves any number of them",
                )
            if not self._is_told and self._clock.monotonic() - self._began >= _SILENT_S:
                self.say(f"{who}; waiting for it")
                self._is_told = True
            await self.pause()

    def served(self) -> tuple[str, ...]:
        """Where the folder is served now; nothing while nobody serves it."""
        holder = self._folder.holder()
        is_idle = self._succession is None or self._succession.done()
        if holder is None and self.succeed is not None and is_idle:
            self._succession = asyncio.create_task(self.succeed())
        return (holder.url,) if holder is not None and holder.url else ()

    async def pause(self) -> None:
        await self._clock.sleep(_LOOK_S)


@contextlib.asynccontextmanager
async def _in_process(data: pathlib.Path, *, shares: bool) -> AsyncIterator[Reached]:
    from bedplate.head import Identity as Caller
    from bedplate.ui.local import LocalBackend

    async with datafolder.open_head(data) as opened:
        caller = Caller.local(_LOCAL_USER)
        backend = LocalBackend(
            opened.head,
            name=opened.folder.settings.name,
            identity=caller,
            health=opened.health,
            notices=opened.notices,
        )
        async with sharing.shared(opened, _application, caller) if shares else contextlib.nullcontext():
            yield Reached(backend, backend.is_own)


def _application(service: Service) -> web.AppRunner:
    from bedplate.ui.rest import app

    return app.runner(app.make(service), service.limits)


@contextlib.asynccontextmanager
async def _remote(
    urls: tuple[str, ...],
    identity: Identity,
    say: Callable[[str], None],
    discover: Callable[[], tuple[str, ...]] = tuple,
) -> AsyncIterator[Reached]:
    from bedplate.client import HeadClient, is_plain
    from bedplate.head.entities import SCHEMA
    from bedplate.ui.remote import RemoteBackend

    urls = tuple(url if "://" in url else f"https://{url}" for url in urls)
    # A socket in the folder asks for no credential; a daemon that comes later does.
    token = _token(identity) or ("-" if urls[0].startswith("http+unix:") else "")
    if token and is_plain(urls[0]):
        say(f"warning: the connection to {urls[0]} is not encrypted; whoever can read it on this machine has the token")
    for file in datafolder.loose(file for file in (identity.token_file, identity.key) if file is not None):
        say(f"warning: {file}")
    client = HeadClient(
        urls,
        token=token,
        ca_file=str(identity.cacert or ""),
        cert_file=str(identity.cert or ""),
        key_file=str(identity.key or ""),
        attempts=_ATTEMPTS,
        discover=discover,
    )
    async with client, RemoteBackend(client, SCHEMA, on_wait=say) as backend:
        yield Reached(backend, backend.is_own)


def _token(identity: Identity) -> str:
    if identity.token_file is None:
        return ""
    try:
        return identity.token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not text"
        raise errors.Invalid(
            f"the token file {identity.token_file} cannot be read: {reason}", hint="give another one with --token-file"
        ) from err
