"""From a target to a backend: a daemon over REST, or the folder's own head in this process.

In: a `Target`. Out: an open backend. Whoever holds the lock of a data folder and serves it is asked over REST, with the
folder's credential; a folder nobody holds is opened here, under its lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from bedplate.apps import cmshsettings, headfolder
from bedplate.apps.cmshsettings import Identity, Target
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.ui.backend import Backend

__all__ = ["Reached", "reach"]

_LOCAL_USER = "admin"
"""Whoever can open the folder could use its administrator's credential as well."""

_STARTING_S = 10.0
_ATTEMPTS = 4
"""Enough for a head that restarts its listener; who mistyped an address does not want to wait for more."""

_LOOK_S = 0.1


class Reached(NamedTuple):
    """A backend; `own` says whether it made a revision, so that others' can be told apart."""

    backend: Backend
    own: Callable[[int], bool]


@contextlib.asynccontextmanager
async def reach(target: Target, say: Callable[[str], None], *, clock: Clock | None = None) -> AsyncIterator[Reached]:
    """Open what the target names; `say` takes lines about a head that is waited for.

    Raises `Unavailable`, `NotFound`, `Invalid`, `Denied`.
    """
    urls, identity = target.urls, target.identity
    if not urls:
        assert target.data is not None, "a target is one or the other"
        url = await _daemon(headfolder.Folder.find(target.data), clock or SystemClock())
        if not url:
            async with _in_process(target) as reached:
                yield reached
            return
        urls, identity = (url,), identity.over(cmshsettings.beside(target.data))
    async with _remote(urls, identity, say) as reached:
        yield reached


async def _daemon(folder: headfolder.Folder, clock: Clock) -> str:
    """Where the folder is served; empty when nobody holds it. A daemon that starts is given time to say it."""
    until = clock.monotonic() + _STARTING_S
    while True:
        holder = folder.holder()
        if holder is None or holder.url:
            return holder.url if holder is not None else ""
        if clock.monotonic() >= until:
            raise errors.Unavailable(
                f"{folder.path} is in use by process {holder.pid or '(not known)'}, which serves nobody else",
                hint=f"leave that shell; bedplate head serve --data {folder.path} serves any number of them",
            )
        await clock.sleep(_LOOK_S)


@contextlib.asynccontextmanager
async def _in_process(target: Target) -> AsyncIterator[Reached]:
    from bedplate.ui.local import LocalBackend

    assert target.data is not None
    async with headfolder.open_head(target.data) as opened:
        backend = LocalBackend(opened.head, name=opened.folder.settings.name, user=_LOCAL_USER)
        # Nobody else can commit to a head that this process holds.
        yield Reached(backend, lambda number: True)


@contextlib.asynccontextmanager
async def _remote(urls: tuple[str, ...], identity: Identity, say: Callable[[str], None]) -> AsyncIterator[Reached]:
    from bedplate.client import HeadClient
    from bedplate.head.entities import SCHEMA
    from bedplate.ui.remote import RemoteBackend

    client = HeadClient(
        [url if "://" in url else f"https://{url}" for url in urls],
        token=_token(identity),
        ca_file=str(identity.cacert or ""),
        cert_file=str(identity.cert or ""),
        key_file=str(identity.key or ""),
        attempts=_ATTEMPTS,
    )
    async with client, RemoteBackend(client, SCHEMA, on_wait=say) as backend:
        yield Reached(backend, backend.is_own)


def _token(identity: Identity) -> str:
    if identity.token_file is None:
        return ""
    try:
        return identity.token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is no text"
        raise errors.Invalid(f"the token file {identity.token_file} cannot be read: {reason}") from err
