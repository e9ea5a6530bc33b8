"""Channels to the members of an etcd cluster, and requests that move from one to the next.

In: endpoints, certificates, a user. Out: answers, or errors of `bedplate.core.errors`. Knows nothing of keys or values.

Requests go to one member as long as it answers. A write is sent only over a connection known to stand, so that a
refused connection is never mistaken for a lost answer; once sent it is never sent again.
"""

from __future__ import annotations

import asyncio
import pathlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from google.protobuf.message import Message

from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock
from bedplate.store.etcd.translate import Verdict, judge, to_error
from bedplate.store.etcdpb import bedplate_etcd_pb2 as pb
from bedplate.store.interface import NoQuorum

__all__ = ["Connection", "EtcdOptions", "Failed"]

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # etcd hangs up on clients that ping while they have no request open.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
]
# A member cut off from the others must say so instead of keeping a watch waiting.
_NEEDS_LEADER = ("hasleader", "true")

_ALONE = b"\x0a\x01\x00\x38\x01"
"""A serializable read of one key (fields 1 and 7 of RangeRequest): a member answers it from what it has itself."""
_ALONE_S = 1.0
"""How long a member may take to say that it is there."""

_R = TypeVar("_R", bound=Message)


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """How to reach etcd. Endpoints: `https://host:port`, `http://host:port`, or `host:port` (TLS with a `ca_file`)."""

    endpoints: Sequence[str]
    prefix: str = "/bedplate"
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    user: str = ""
    password: str = ""
    timeout_s: float = 10.0
    connect_timeout_s: float = 3.0


class Failed(Exception):
    """A request was answered with a refusal about a revision; the caller knows which one it asked for."""

    def __init__(self, verdict: Verdict, text: str) -> None:
        super().__init__(text)
        self.verdict = verdict


@dataclass(slots=True)
class _Member:
    endpoint: str
    channel: Any


class Connection:
    """The members, of which one at a time is in use."""

    def __init__(self, options: EtcdOptions, clock: Clock, rng: random.Random) -> None:
        self._options = options
        self._clock = clock
        self._rng = rng
        self._members: list[_Member] = []
        self._current = 0
        self._token = ""
        self._is_closing = False
        self._in_flight = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def open(self) -> None:
        """Make the channels and sign in. Raises when no member answers in time."""
        credentials = await asyncio.to_thread(_credentials, self._options)
        for endpoint in self._options.endpoints:
            scheme, _, address = endpoint.rpartition("://")
            if scheme == "https" or (not scheme and self._options.ca_file):
                channel = grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
            else:
                channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
            self._members.append(_Member(endpoint, channel))
        if self._options.user:
            await self._sign_in()

    async def close(self) -> None:
        """Let requests under way come to their end, which their timeout bounds, and close the channels."""
        self._is_closing = True
        await self._quiet.wait()
        members, self._members = self._members, []
        for member in members:
            await member.channel.close(None)

    async def ask(self, method: str, request: Message, answer: type[_R], *, writes: bool = False) -> _R:
        """One request with one answer, moving to other members where that is safe. Raises `Failed` and our errors."""
        if self._is_closing:
            raise errors.Unavailable("the connection to etcd is closed")
        self._in_flight += 1
        self._quiet.clear()
        try:
            return await self._ask(method, request, answer, writes=writes)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._quiet.set()

    async def _ask(self, method: str, request: Message, answer: type[_R], *, writes: bool) -> _R:
        deadline = self._clock.monotonic() + self._options.timeout_s
        backoff = Backoff(first_s=0.05, cap_s=1.0, rng=self._rng)
        signed_in = False
        problem: errors.BedplateError = errors.Unavailable(f"etcd at {self._names()} does not answer")
        while (left := deadline - self._clock.monotonic()) > 0:
            member = await self._ready(left)
            if member is None:
                await self._clock.sleep(min(backoff.next(), left))
                continue
            # A read leaves time for a second member to answer it.
            timeout = left if writes else min(left, self._options.timeout_s / 2)
            try:
                return await self._send(member, method, request, answer, timeout)
            except grpc.aio.AioRpcError as error:
                text = error.details() or str(error.code())
                verdict = judge(error.code(), text, writes=writes)
            if verdict in (Verdict.COMPACTED, Verdict.FUTURE):
                raise Failed(verdict, text)
            problem = to_error(verdict, member.endpoint, text)
            if verdict is Verdict.SIGN_IN and self._options.user and not signed_in:
                signed_in = True
                await self._sign_in()
            elif verdict is Verdict.ELSEWHERE:
                self.leave(member)
                await self._clock.sleep(min(backoff.next(), left))
            else:
                if verdict is Verdict.UNKNOWN:
                    self.leave(member)
                raise problem
        raise await self.without_quorum() or problem

    async def without_quorum(self) -> NoQuorum | None:
        """What is wrong when so few members answer, each for itself, that the cluster cannot decide anything. One
        endpoint says nothing of that: it may be the only member, or a balancer in front of many."""
        members = list(self._members)
        if len(members) < 2:
            return None
        answers = await asyncio.gather(*(self._answers(member) for member in members))
        return None if sum(answers) > len(members) // 2 else NoQuorum(sum(answers), len(members))

    async def _answers(self, member: _Member) -> bool:
        """Whether a member answers what it can without the others."""
        if not await _is_connected(member.channel, _ALONE_S):
            return False
        call: Callable[..., Any] = member.channel.unary_unary(
            "/etcdserverpb.KV/Range", request_serializer=bytes, response_deserializer=pb.RangeResponse.FromString
        )
        metadata = (("token", self._token),) if self._token else ()
        try:
            await call(_ALONE, timeout=_ALONE_S, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return True

    async def _send(self, member: _Member, method: str, request: Message, answer: type[_R], timeout: float) -> _R:
        call: Callable[..., Any] = member.channel.unary_unary(
            method, request_serializer=_serialize, response_deserializer=answer.FromString
        )
        response: _R = await call(request, timeout=timeout, metadata=self._metadata())
        return response

    @asynccontextmanager
    async def stream(self, method: str, answer: type[_R]) -> AsyncIterator[tuple[_Member, Any]]:
        """A stream in both directions to the member in use, cancelled on leaving."""
        member = await self._ready(self._options.timeout_s)
        if member is None:
            raise errors.Unavailable(f"etcd at {self._names()} does not answer")
        call = member.channel.stream_stream(
            method, request_serializer=_serialize, response_deserializer=answer.FromString
        )(metadata=self._metadata())
        try:
            yield member, call
        finally:
            call.cancel()

    def leave(self, member: _Member) -> None:
        """Use the next member from now on, unless another request has moved on already."""
        if self._members and self._members[self._current % len(self._members)] is member:
            self._current += 1

    async def renew(self) -> None:
        """Sign in again, after a token was refused."""
        if self._options.user:
            await self._sign_in()

    async def _ready(self, left: float) -> _Member | None:
        """A member whose connection stands; None when none does at the moment."""
        if not self._members:
            raise errors.Unavailable("the connection to etcd is closed")
        for _ in self._members:
            member = self._members[self._current % len(self._members)]
            if await _is_connected(member.channel, min(left, self._options.connect_timeout_s)):
                return member
            self.leave(member)
        return None

    async def _sign_in(self) -> None:
        self._token = ""
        request = pb.AuthenticateRequest(name=self._options.user, password=self._options.password)
        answer = await self.ask("/etcdserverpb.Auth/Authenticate", request, pb.AuthenticateResponse)
        self._token = answer.token

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (_NEEDS_LEADER, ("token", self._token)) if self._token else (_NEEDS_LEADER,)

    def _names(self) -> str:
        return ", ".join(self._options.endpoints)


async def _is_connected(channel: Any, timeout: float) -> bool:
    state = channel.get_state(try_to_connect=True)
    if state is grpc.ChannelConnectivity.READY:
        return True
    try:
        async with asyncio.timeout(timeout):
            while state in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING):
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    except TimeoutError:
        return False
    return bool(state is grpc.ChannelConnectivity.READY)


def _credentials(options: EtcdOptions) -> Any:
    def read(path: str) -> bytes | None:
        return pathlib.Path(path).read_bytes() if path else None

    try:
        return grpc.ssl_channel_credentials(read(options.ca_file), read(options.key_file), read(options.cert_file))
    except OSError as error:
        raise errors.Invalid(f"a certificate for etcd cannot be read: {error}") from error


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
