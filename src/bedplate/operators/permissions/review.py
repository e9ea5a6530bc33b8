"""Admission reviews: the webhook's requests and answers.

In: the body of an AdmissionReview (v1), the rules of namespaces, what is known of claims. Out: the body of the answer.
Pure. What cannot be read is refused, as an answer and not as an HTTP error, so that the API server shows why.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from bedplate.api.permissions import PersistentVolumeClaim
from bedplate.api.resources import RawObject
from bedplate.operators.permissions import decision, refusals, volumes
from bedplate.operators.permissions.decision import Claims, Operation
from bedplate.operators.permissions.refusals import Refusal
from bedplate.operators.permissions.rules import NamespaceRules

__all__ = ["Answer", "Knowledge", "judge_claim", "judge_pod", "namespace_of_a_path"]

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str = ""
    namespace: str = ""
    sub_resource: str = ""
    object: msgspec.Raw = msgspec.Raw()


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request


_decoder = msgspec.json.Decoder(_Review)
_pods: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_claims = msgspec.json.Decoder(PersistentVolumeClaim)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer, and whether the object is admitted."""

    body: bytes
    is_allowed: bool


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the answers depend on. `rules` is of a namespace, `claims` of a pod, `claim` of a claim and its class;
    `was_other`: a claim of this name was there a moment ago, or still is, that was not on a path of a node."""

    rules: Callable[[str], NamespaceRules]
    claims: Callable[[str, RawObject], Claims]
    claim: Callable[[str, PersistentVolumeClaim], tuple[volumes.Claim, Any]]
    was_other: Callable[[str, PersistentVolumeClaim], bool]


def judge_pod(body: bytes, knowledge: Knowledge, *, may_change: bool) -> Answer:
    """Answer a review of a pod. `may_change`: as the webhook that may change it, or as the one that sees the result."""
    review, problem = _read(body)
    if review is None:
        return _refused("", HTTPStatus.BAD_REQUEST, problem)
    request = review.request
    try:
        pod = _pods.decode(request.object)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        return _refused(request.uid, HTTPStatus.BAD_REQUEST, f"the pod cannot be read: {err}")
    rules = knowledge.rules(request.namespace)
    claims = knowledge.claims(request.namespace, pod)
    if not may_change:
        reasons = tuple(itertools.islice(decision.check(rules, pod, claims), decision.MOST_REASONS))
        return (
            _refused(request.uid, HTTPStatus.FORBIDDEN, refusals.summary(reasons)) if reasons else _allowed(request.uid)
        )
    operation = Operation.DEBUG if request.sub_resource == "ephemeralcontainers" else Operation.CREATE
    verdict = decision.decide(rules, pod, operation, claims)
    if not verdict.is_admitted:
        return _refused(request.uid, HTTPStatus.FORBIDDEN, verdict.message)
    return _allowed(request.uid, verdict.patch)


def judge_claim(body: bytes, knowledge: Knowledge, present: Sequence[RawObject] = ()) -> Answer:
    """Answer a review of a claim that has a volume. `present`: the pods of `namespace_of_a_path`."""
    review, problem = _read(body)
    if review is None:
        return _refused("", HTTPStatus.BAD_REQUEST, problem)
    request = review.request
    try:
        claim = _claims.decode(request.object)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        return _refused(request.uid, HTTPStatus.BAD_REQUEST, f"the claim cannot be read: {err}")
    known, class_ = knowledge.claim(request.namespace, claim)
    rules = knowledge.rules(request.namespace)
    reasons = volumes.judge_claim(rules, known, class_)
    if not reasons and known.path:
        reasons = _judge_name(rules, knowledge, request.namespace, claim, known, present)
    return _refused(request.uid, HTTPStatus.FORBIDDEN, refusals.summary(reasons)) if reasons else _allowed(request.uid)


def namespace_of_a_path(body: bytes, knowledge: Knowledge) -> str:
    """The namespace of a reviewed claim that leads to a path of a node; empty for any other claim."""
    review, _ = _read(body)
    if review is None:
        return ""
    try:
        claim = _claims.decode(review.request.object)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return review.request.namespace if knowledge.claim(review.request.namespace, claim)[0].path else ""


def _judge_name(
    rules: NamespaceRules,
    knowledge: Knowledge,
    namespace: str,
    claim: PersistentVolumeClaim,
    known: volumes.Claim,
    present: Sequence[RawObject],
) -> tuple[Refusal, ...]:
    """Pods that name the claim must be such as a path of a node allows."""
    if knowledge.was_other(namespace, claim):
        rule, message = rules.sets[0].rule(refusals.HOST_PATHS), f"{claim.name!r} was another claim a moment ago"
        return (Refusal(rule, "metadata.name", message, "wait a minute, or choose another name"),)

    def judge(pod: RawObject) -> list[Refusal]:
        claims = knowledge.claims(namespace, pod)
        before = set(decision.check(rules, pod, {**claims, claim.name: volumes.Claim()}))
        return [each for each in decision.check(rules, pod, {**claims, claim.name: known}) if each not in before]

    return volumes.judge_name(claim.name, known.path, present, judge)


def _read(body: bytes) -> tuple[_Review | None, str]:
    try:
        review = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        return None, f"the request is not an AdmissionReview: {err}"
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        return None, f"only {KIND} of {API_VERSION} is supported"
    return review, ""


def _allowed(uid: str, patch: tuple[dict[str, Any], ...] = ()) -> Answer:
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return _answer(response)


def _refused(uid: str, code: HTTPStatus, message: str) -> Answer:
    reason = "Forbidden" if code is HTTPStatus.FORBIDDEN else "BadRequest"
    status = {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}
    return _answer({"uid": uid, "allowed": False, "status": status})


def _answer(response: dict[str, Any]) -> Answer:
    body = msgspec.json.encode({"kind": KIND, "apiVersion": API_VERSION, "response": response})
    return Answer(body, response["allowed"])
