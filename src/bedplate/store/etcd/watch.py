"""A watch on etcd that outlives its connection.

In: a prefix and a revision. Out: batches of events, every one once and in order. Each watch is one stream, read only
when its reader asks, so that a slow reader is held back by flow control and not by memory of ours. When the stream
breaks, or the read is cancelled, the next one begins after the last revision that was handed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.store.etcd.members import Connection
from bedplate.store.etcd.translate import Translator, Verdict, judge, to_error
from bedplate.store.etcdpb import bedplate_etcd_pb2 as pb
from bedplate.store.interface import Batch, Compacted

__all__ = ["Watch"]

_PROGRESS = pb.WatchRequest(progress_request=pb.WatchProgressRequest())
_CREATE_TIMEOUT_S = 10.0
# How long a stream may be silent before it is asked for a sign of life, and how long the answer may take.
_SILENCE_S = 10.0
_ANSWER_S = 5.0

_log = get_logger("store.etcd")


class Watch(AsyncIterator[Batch]):
    """`confirm` raises `Compacted` unless the state at a revision can still be read."""

    def __init__(
        self,
        connection: Connection,
        translator: Translator,
        clock: Clock,
        backoff: Backoff,
        prefix: str,
        after: int,
        confirm: Callable[[int], Awaitable[None]],
    ) -> None:
        self.reached = after
        self.closed: errors.BedplateError | None = None
        self._connection = connection
        self._translator = translator
        self._clock = clock
        self._backoff = backoff
        self._prefix = prefix
        self._confirm = confirm
        self._after = after
        self._is_confirmed = False
        self._member: Any = None
        self._call: Any = None
        self._stack = AsyncExitStack()
        self._moved = asyncio.Event()

    async def __anext__(self) -> Batch:
        self._move(self._after)  # the reader is back, so it has dealt with all it was given
        while self.closed is None:
            try:
                if self._call is None:
                    await self._open()
                return await self._read()
            except (grpc.aio.AioRpcError, errors.Unavailable) as error:
                await self._drop()
                if self.closed is None:
                    await self._recover(error)
            except BaseException:
                await self._drop()
                raise
        raise errors.Unavailable(self.closed.message)

    async def aclose(self) -> None:
        """Cancel the stream."""
        await self._drop()

    async def ask_progress(self) -> None:
        """Ask etcd to say how far this watch is; the answer is read by `__anext__`."""
        if self._call is not None:
            try:
                await self._call.write(_PROGRESS)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # the stream is breaking; its reader finds out and opens the next one

    async def reach(self, revision: int) -> None:
        """Wait until the reader has dealt with everything up to a revision."""
        wait_s = 0.002
        while self.reached < revision and self.closed is None:
            self._moved.clear()
            await self.ask_progress()
            try:
                async with asyncio.timeout(wait_s):
                    await self._moved.wait()
            except TimeoutError:
                wait_s = min(wait_s * 2, 0.1)

    def _move(self, revision: int) -> None:
        if revision > self.reached:
            self.reached = revision
        self._moved.set()

    async def _open(self) -> None:
        stack = AsyncExitStack()
        member, call = await stack.enter_async_context(
            self._connection.stream("/etcdserverpb.Watch/Watch", pb.WatchResponse)
        )
        try:
            low, end = self._translator.bounds(self._prefix)
            create = pb.WatchCreateRequest(
                key=low,
                range_end=end,
                start_revision=self._after + 1,
                progress_notify=True,
                prev_kv=True,
                fragment=True,
            )
            async with asyncio.timeout(_CREATE_TIMEOUT_S):
                await call.write(pb.WatchRequest(create_request=create))
                answer = await _next(call)
            if answer.canceled:
                raise self._refusal(answer, member.endpoint)
            if not self._is_confirmed and self._after <= answer.header.revision:
                # etcd would also accept the revision before the oldest, but could not tell what stood there.
                await self._confirm(self._after)
            self._is_confirmed = True
        except TimeoutError:
            await stack.aclose()
            self._connection.leave(member)
            raise errors.Unavailable(f"etcd at {member.endpoint} did not open the watch in time") from None
        except BaseException:
            await stack.aclose()
            raise
        self._member, self._call, self._stack = member, call, stack
        self._backoff.reset()

    async def _read(self) -> Batch:
        """The next batch; an empty one when etcd only said how far it is."""
        parts: list[pb.Event] = []
        while True:
            self._set_alarm(_SILENCE_S, self._prod)
            try:
                answer = await _next(self._call)
            finally:
                self._alarm.cancel()
            if answer.canceled:
                raise self._refusal(answer, self._member.endpoint)
            parts += answer.events
            if not answer.fragment:
                break
        if not parts:
            self._after = max(self._after, answer.header.revision)
            self._move(self._after)
            return []
        batch = self._translator.events(parts)
        if batch is None:
            raise Compacted(self._after, parts[0].kv.mod_revision)
        self._after = batch[-1].revision
        return batch

    def _set_alarm(self, seconds: float, callback: Callable[[], None]) -> None:
        self._alarm = asyncio.get_running_loop().call_later(seconds, callback)

    def _prod(self) -> None:
        """Nothing was heard for long: a member that hangs keeps its connections, so only an answer shows life."""
        self._prodding = asyncio.ensure_future(self.ask_progress())
        self._set_alarm(_ANSWER_S, self._give_up)

    def _give_up(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _refusal(self, answer: pb.WatchResponse, endpoint: str) -> errors.BedplateError:
        if answer.compact_revision:
            return Compacted(self._after, answer.compact_revision)
        verdict = judge(grpc.StatusCode.UNAVAILABLE, answer.cancel_reason, writes=False)
        return to_error(verdict, endpoint, answer.cancel_reason or "the watch was cancelled")

    async def _recover(self, error: grpc.aio.AioRpcError | errors.Unavailable) -> None:
        """Wait before the next attempt; raise what no retry can fix."""
        text = str(error)
        if isinstance(error, grpc.aio.AioRpcError):
            text = error.details() or str(error.code())
            verdict = judge(error.code(), text, writes=False)
            if verdict is Verdict.SIGN_IN:
                await self._connection.renew()
            elif verdict is not Verdict.ELSEWHERE:
                raise to_error(verdict, "the watched member", text)
        if self._member is not None:
            self._connection.leave(self._member)
            self._member = None
        delay = self._backoff.next()
        _log.info("watch.resuming", prefix=self._prefix, after=self._after, delay_s=round(delay, 3), reason=text)
        await self._clock.sleep(delay)

    async def _drop(self) -> None:
        self._call = None
        await self._stack.aclose()


async def _next(call: Any) -> pb.WatchResponse:
    try:
        answer = await call.read()
    except asyncio.CancelledError:
        # gRPC also raises this when another task cancelled the call, as closing the store does.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise errors.Unavailable("the watch was closed, or its member gave no sign of life") from None
    if answer is grpc.aio.EOF:
        raise errors.Unavailable("etcd ended the watch")
    response: pb.WatchResponse = answer
    return response
