"""Between the store's terms and etcd's messages. Pure.

In: keys below a prefix, operations, events; a gRPC status code and its text. Out: requests, entries, and a `Verdict`:
refused, unavailable, not known, or worth asking another member. The prefix is put before every key on the way in and
taken off on the way out, so that several stores can share one etcd. A write is only ever sent again when etcd cannot
have executed it; whatever leaves room for doubt is `UNKNOWN`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import grpc  # type: ignore[import-untyped]

from bedplate.core import errors
from bedplate.store.etcdpb import bedplate_etcd_pb2 as pb
from bedplate.store.interface import Batch, CompareFailed, Entry, Event, Op, OutcomeUnknown, Put, StoreFull

__all__ = ["Translator", "Verdict", "judge", "to_error"]


class Translator:
    """Knows the prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def key(self, key: str) -> bytes:
        return self._prefix + key.encode()

    def bounds(self, prefix: str, after: str = "") -> tuple[bytes, bytes]:
        """First key and end of a range; an etcd range end of one zero byte means: to the end of all keys."""
        low = self.key(prefix)
        return max(low, self.key(after) + b"\x00") if after else low, _end(low)

    def entry(self, pair: pb.KeyValue) -> Entry:
        return Entry(pair.key[len(self._prefix) :].decode(), pair.value, pair.mod_revision, pair.create_revision)

    def transaction(self, ops: Sequence[Op]) -> pb.TxnRequest:
        """Compare all expectations; write all if they hold, read the compared keys if they do not."""
        request = pb.TxnRequest()
        for op in ops:
            key = self.key(op.key)
            if op.expect is not None:
                # An absent key has modification revision 0 in etcd.
                request.compare.add(target=pb.Compare.MOD, key=key, mod_revision=op.expect)
                request.failure.add(request_range=pb.RangeRequest(key=key))
            if isinstance(op, Put):
                request.success.add(request_put=pb.PutRequest(key=key, value=op.value))
            else:
                request.success.add(request_delete_range=pb.DeleteRangeRequest(key=key))
        return request

    def refusal(self, ops: Sequence[Op], answer: pb.TxnResponse) -> CompareFailed:
        """Which expectation did not hold, from the keys read in the same transaction."""
        responses = iter(answer.responses)
        for op in ops:
            if op.expect is None:
                continue
            pairs = next(responses).response_range.kvs
            current = self.entry(pairs[0]) if pairs else None
            if op.expect != (current.revision if current else 0):
                return CompareFailed(op.key, current, op.expect)
        raise AssertionError("etcd refused a transaction whose every expectation holds")

    def events(self, events: Sequence[pb.Event]) -> Batch | None:
        """Events of whole commits; None when the history they refer to was compacted away meanwhile."""
        batch: Batch = []
        for event in events:
            pair = event.kv
            is_put = event.type == pb.Event.PUT
            has_previous = event.HasField("prev_kv")
            if not has_previous and not (is_put and pair.version == 1):
                return None
            entry = self.entry(pair) if is_put else None
            previous = self.entry(event.prev_kv) if has_previous else None
            batch.append(Event(pair.key[len(self._prefix) :].decode(), pair.mod_revision, entry, previous))
        return batch


def _end(low: bytes) -> bytes:
    kept = low.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\x00"


class Verdict(enum.Enum):
    """What to do about a failed request."""

    ELSEWHERE = "not executed; another member, or the same one later, may do it"
    SIGN_IN = "not executed; the token is no longer valid"
    COMPACTED = "the revision is gone"
    FUTURE = "the revision has not come"
    FULL = "the quota is exhausted"
    TOO_LARGE = "the request breaks a limit"
    DENIED = "the credentials do not allow it"
    BUSY = "not executed; asked to wait"
    UNKNOWN = "may have been executed"
    BROKEN = "trying again changes nothing"


# etcd tells its errors apart by text, not by code; these are executed by no member when they are returned.
_BY_TEXT = {
    "no leader": Verdict.ELSEWHERE,
    "not capable": Verdict.ELSEWHERE,
    "rpc not supported for learner": Verdict.ELSEWHERE,
    "failed to connect to all addresses": Verdict.ELSEWHERE,
    "invalid auth token": Verdict.SIGN_IN,
    "revision of auth store is old": Verdict.SIGN_IN,
    "user name is empty": Verdict.DENIED,
    "authentication failed": Verdict.DENIED,
    "permission denied": Verdict.DENIED,
    "required revision has been compacted": Verdict.COMPACTED,
    "required revision is a future revision": Verdict.FUTURE,
    "database space exceeded": Verdict.FULL,
    "request is too large": Verdict.TOO_LARGE,
    "too many operations": Verdict.TOO_LARGE,
    "received message larger than max": Verdict.TOO_LARGE,
    "too many requests": Verdict.BUSY,
    "corrupt cluster": Verdict.BROKEN,
}
_BY_CODE = {
    grpc.StatusCode.INVALID_ARGUMENT: Verdict.BROKEN,
    grpc.StatusCode.UNIMPLEMENTED: Verdict.BROKEN,
    grpc.StatusCode.FAILED_PRECONDITION: Verdict.BROKEN,
    grpc.StatusCode.PERMISSION_DENIED: Verdict.DENIED,
    grpc.StatusCode.UNAUTHENTICATED: Verdict.SIGN_IN,
}


def judge(code: grpc.StatusCode, text: str, *, writes: bool) -> Verdict:
    """What a failed request means. A read has no outcome to be unsure of: it may be asked again anywhere."""
    for part, verdict in _BY_TEXT.items():
        if part in text:
            return verdict
    by_code = _BY_CODE.get(code)
    if by_code is not None:
        return by_code
    return Verdict.UNKNOWN if writes else Verdict.ELSEWHERE


def to_error(verdict: Verdict, endpoint: str, text: str) -> errors.BedplateError:
    """The error for a verdict that is final; the two about revisions need figures and are made by the caller."""
    match verdict:
        case Verdict.FULL:
            return StoreFull(
                f"etcd at {endpoint} has exhausted its quota", hint="compact and defragment it, then clear its alarm"
            )
        case Verdict.TOO_LARGE:
            return errors.Invalid(f"etcd at {endpoint} refused the request: {text}")
        case Verdict.DENIED | Verdict.SIGN_IN:
            return errors.Denied(f"etcd at {endpoint} refused the credentials: {text}")
        case Verdict.UNKNOWN:
            return OutcomeUnknown(
                f"etcd at {endpoint} did not say whether the write was done: {text}",
                hint="read the keys again before deciding again",
            )
        case Verdict.BROKEN:
            return errors.Terminal(f"etcd at {endpoint} failed: {text}")
        case _:
            return errors.Unavailable(f"etcd at {endpoint}: {text}")
