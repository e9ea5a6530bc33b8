"""What an answer of etcd means: refused, unavailable, not known, or worth asking another member. Pure.

In: a gRPC status code and its text, and whether the request could have changed anything. Out: a `Verdict`.

A write is only ever sent again when etcd cannot have executed it. Whatever leaves room for doubt is `UNKNOWN`.
"""

from __future__ import annotations

import enum

import grpc  # type: ignore[import-untyped]

from bedplate.core import errors
from bedplate.store.interface import OutcomeUnknown, StoreFull

__all__ = ["Verdict", "judge", "to_error"]


class Verdict(enum.Enum):
    """What to do about a failed request."""

    ELSEWHERE = "not executed; another member, or the same one later, may do it"
    SIGN_IN = "not executed; the token is no longer valid"
    COMPACTED = "the revision is gone"
    FUTURE = "the revision has not come"
    FULL = "the quota is used up"
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
                f"etcd at {endpoint} has used up its quota", hint="compact and defragment it, then clear its alarm"
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
