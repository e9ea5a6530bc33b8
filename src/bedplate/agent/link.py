"""The agent's line to the head: what should be, what was done, and whose turn it is.

In: URLs of the heads, the authority that is trusted (that one alone), and a client certificate or a token. Out: desired
states and reports. The files of the credential are looked at before each request: after a renewal the next request
uses the new certificate.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bedplate.api import headapi
from bedplate.client import HeadClient, Wanted
from bedplate.client.http import Duplex, Streamed
from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock, SystemClock
from bedplate.core.logging import get_logger

__all__ = ["Head", "Link", "Login"]

T = TypeVar("T")
_LOG = get_logger("agent.link")
_TURN_WAIT_S = 60.0
_TURN_LASTS_S = 600.0
_PATIENCE_S = 120.0
_LONGEST_TOKEN = 1 << 16
_TRANSFER_WAIT_S = 12 * 3600.0
_TRANSFER_IDLE_S = 3600.0
"""A head that says nothing for so long is gone, whatever it has to put in place."""
_SNAPSHOT_IDLE_S = 900.0


class Head(Protocol):
    """What the agent asks of a head; raises the errors of `core.errors`."""

    async def desired(self, etag: str, wait_s: float) -> Wanted | None: ...

    async def report(self, report: headapi.ReportRequest) -> int: ...

    def image(self, id_: str) -> AbstractAsyncContextManager[Duplex]: ...

    def snapshot(self, id_: str) -> AbstractAsyncContextManager[Duplex]: ...

    def archive(self, digest: str) -> AbstractAsyncContextManager[Streamed]: ...


@dataclass(frozen=True, slots=True)
class Login:
    """Where the heads are, and who this node is to them."""

    node: str
    urls: tuple[str, ...]
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    token_file: str = ""


class Link:
    """Open with `async with`."""

    def __init__(self, login: Login, *, clock: Clock | None = None) -> None:
        self._login = login
        self._clock = clock or SystemClock()
        self._client: HeadClient | None = None
        self._mark: tuple[int, ...] = ()

    async def __aenter__(self) -> Link:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._close()

    async def desired(self, etag: str, wait_s: float) -> Wanted | None:
        """What this node should be; None when that is what `etag` stands for, after waiting for another."""
        return await (await self._open()).desired(self._login.node, etag, wait_s=wait_s)

    async def report(self, report: headapi.ReportRequest) -> int:
        """Tell the head; its present revision."""
        client = await self._open()
        return await client.report(
            self._login.node,
            applied=report.applied,
            digest=report.digest,
            actions=report.actions,
            failures=report.failures,
            results=report.results,
            tried=report.tried,
            errands=report.errands,
            booted=report.booted,
            version=report.version,
            checks=report.checks,
            run=report.run,
            system=report.system,
        )

    @asynccontextmanager
    async def image(self, id_: str) -> AsyncIterator[Duplex]:
        """The stream of a transfer that the head asked for."""
        client = await self._open()
        async with client.transfer_image(
            self._login.node, id_, wait_s=_TRANSFER_WAIT_S, idle_s=_TRANSFER_IDLE_S
        ) as duplex:
            yield duplex

    @asynccontextmanager
    async def snapshot(self, id_: str) -> AsyncIterator[Duplex]:
        """The stream of a snapshot that the head asked for, or that it gives."""
        client = await self._open()
        async with client.transfer_snapshot(
            self._login.node, id_, wait_s=_PATIENCE_S, idle_s=_SNAPSHOT_IDLE_S
        ) as duplex:
            yield duplex

    @asynccontextmanager
    async def archive(self, digest: str) -> AsyncIterator[Streamed]:
        """The agent's archive with that digest, as it comes."""
        client = await self._open()
        async with client.agent_archive(self._login.node, digest) as answer:
            yield answer

    @asynccontextmanager
    async def take(self, serial: str, service: str) -> AsyncIterator[None]:
        """Wait for the turn of a group, and give it back; who fails stops the others until an administrator looked.

        A head that is restarted meanwhile is waited for. Raises `Unavailable` when another node failed, or no head
        answers for long: then nothing is restarted.
        """
        node = self._login.node

        async def ask() -> headapi.TurnAnswer:
            return await (await self._open()).take_turn(node, serial, wait_s=_TURN_WAIT_S, lasts_s=_TURN_LASTS_S)

        backoff = Backoff(first_s=0.2, cap_s=_TURN_WAIT_S)
        while True:
            asked_s = self._clock.monotonic()
            answer = await self._patiently(ask)
            if answer.is_granted:
                break
            if answer.failed:
                raise errors.Unavailable(
                    f"{service} is not restarted: it failed on {answer.failed} ({answer.why})",
                    hint=f"repair {answer.failed}, then release the turn of {serial}",
                )
            if self._clock.monotonic() - asked_s < _TURN_WAIT_S / 2:
                # The head did not let it wait: another one may be taking over.
                await self._clock.sleep(backoff.next())
        try:
            yield
        except BaseException as err:
            # Who is told to stop does not wait for a head.
            await self._end_turn(serial, str(err) or type(err).__name__, is_patient=isinstance(err, Exception))
            raise
        await self._end_turn(serial, "", is_patient=True)

    async def _end_turn(self, serial: str, why: str, *, is_patient: bool) -> None:
        """A turn that cannot be given back ends by itself, much later, and counts as failed."""

        async def tell() -> None:
            client = await self._open()
            await client.end_turn(self._login.node, serial, failed=bool(why), text=" ".join(why.split())[:1000])

        try:
            await (self._patiently(tell) if is_patient else tell())
        except errors.BedplateError as err:
            _LOG.warning("agent.turn.lost", group=serial, error=str(err))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until a head answers, for as long as the start of one may take."""
        end_s, backoff = self._clock.monotonic() + _PATIENCE_S, Backoff(first_s=0.2, cap_s=5.0)
        while True:
            try:
                return await ask()
            except errors.Unavailable:
                if self._clock.monotonic() >= end_s:
                    raise
            await self._clock.sleep(backoff.next())

    async def _open(self) -> HeadClient:
        mark = self._files_mark()
        if self._client is not None and mark == self._mark:
            return self._client
        login = self._login
        token = _read(login.token_file) if login.token_file else ""
        # Each head is asked once; who waits how long until the next try is the loop's to say.
        client = HeadClient(
            login.urls,
            token=token,
            ca_file=login.ca_file,
            cert_file=login.cert_file,
            key_file=login.key_file,
            attempts=len(login.urls) + 1,
        )
        previous, self._client, self._mark = self._client, await client.__aenter__(), mark
        if previous is not None:
            await previous.__aexit__(None, None, None)
        return client

    async def _close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.__aexit__(None, None, None)

    def _files_mark(self) -> tuple[int, ...]:
        login = self._login
        return tuple(_stamp(path) for path in (login.ca_file, login.cert_file, login.key_file, login.token_file))


def _stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns if path else 0
    except OSError:
        return -1


def _read(path: str) -> str:
    try:
        with open(path) as stream:
            token = stream.read(_LONGEST_TOKEN).strip()
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("it is not a token")
    except (OSError, ValueError) as err:
        why = err.strerror if isinstance(err, OSError) else "it is not a token"
        raise errors.Denied(
            f"the token in {path} cannot be read: {why}", hint="enrol the node: bedplate agent enrol"
        ) from err
    return token
