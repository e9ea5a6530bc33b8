"""Admission: may this pool be stored?

In: the body of an AdmissionReview (v1) and, for its warnings, the other pools there are. Out: the body of the answer.
Pure. Creations and updates are judged by the new object alone, everything else is let pass; nothing is ever
changed. What cannot be read is refused with 400, as an answer of the webhook and not of HTTP, so that the API server
shows why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec

from bedplate.ipam import validation
from bedplate.ipam.pools import CIDRPool, IPPool
from bedplate.ipam.validation import Problem

__all__ = ["CIDRPOOL", "IPPOOL", "Answer", "Rules", "judge"]

P = TypeVar("P", bound=IPPool | CIDRPool)
API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
_JUDGED = ("CREATE", "UPDATE")
# What an API server shows of one warning, and of all together.
_LONGEST_WARNING, _ALL_WARNINGS = 250, 4000


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw()


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request


_decoder = msgspec.json.Decoder(_Review)


@dataclass(frozen=True, slots=True)
class Rules(Generic[P]):
    """How one kind is judged."""

    path: str
    model: type[P]
    problems: Callable[[P], Sequence[Problem]]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer, and its code for those who count."""

    body: bytes
    code: int


IPPOOL: Rules[IPPool] = Rules(
    "/validate-nv-ipam-nvidia-com-v1alpha1-ippool",
    IPPool,
    lambda pool: validation.ippool_problems(pool.name, pool.spec),
)
CIDRPOOL: Rules[CIDRPool] = Rules(
    "/validate-nv-ipam-nvidia-com-v1alpha1-cidrpool",
    CIDRPool,
    lambda pool: validation.cidrpool_problems(pool.name, pool.spec),
)


def judge(rules: Rules[P], body: bytes, warn: Callable[[P], Sequence[str]]) -> Answer:
    """Answer a review. `warn`: what else should be said about a pool that is accepted."""
    try:
        review = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        return _refused("", HTTPStatus.BAD_REQUEST, f"the request is not an AdmissionReview: {err}")
    request = review.request
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        return _refused(request.uid, HTTPStatus.BAD_REQUEST, f"only {KIND} of {API_VERSION} is supported")
    if request.operation not in _JUDGED:
        return _allowed(request.uid)
    try:
        pool = msgspec.json.decode(request.object, type=rules.model)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        return _refused(request.uid, HTTPStatus.BAD_REQUEST, f"the object cannot be read: {err}")
    problems = rules.problems(pool)
    if problems:
        return _refused(request.uid, HTTPStatus.FORBIDDEN, validation.summary(problems))
    return _allowed(request.uid, warn(pool))


def _allowed(uid: str, warnings: Sequence[str] = ()) -> Answer:
    response: dict[str, Any] = {"uid": uid, "allowed": True, "status": {"metadata": {}, "code": HTTPStatus.OK}}
    if kept := _fitting(warnings):
        response["warnings"] = kept
    return _answer(response, HTTPStatus.OK)


def _refused(uid: str, code: HTTPStatus, message: str) -> Answer:
    reason = "Forbidden" if code is HTTPStatus.FORBIDDEN else "BadRequest"
    status = {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}
    return _answer({"uid": uid, "allowed": False, "status": status}, code)


def _answer(response: dict[str, Any], code: HTTPStatus) -> Answer:
    return Answer(msgspec.json.encode({"kind": KIND, "apiVersion": API_VERSION, "response": response}), code)


def _fitting(warnings: Sequence[str]) -> list[str]:
    """As many as an API server passes on whole."""
    kept, size = [], 0
    for text in warnings:
        short = text if len(text) <= _LONGEST_WARNING else text[: _LONGEST_WARNING - 1] + "…"
        size += len(short)
        if size > _ALL_WARNINGS:
            break
        kept.append(short)
    return kept
