"""Answers to reviews, byte by byte and with hostile input."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.ipam.webhook.rules import CIDRPOOL, IPPOOL, RULES

from bedplate.ipam.webhook import review

API = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


def ask(spec: Any, operation: str = "CREATE", rules: review.Rules[Any] = review.IPPOOL, **more: Any) -> dict[str, Any]:
    pool = {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}
    request = {"uid": "u-1", "operation": operation, "object": pool, **more}
    answer = review.judge(rules, json.dumps({**API, "request": request}).encode(), lambda _: [])
    found: dict[str, Any] = json.loads(answer.body)
    assert found["apiVersion"] == API["apiVersion"] and found["kind"] == API["kind"]
    response: dict[str, Any] = found["response"]
    return response


def test_a_good_pool_is_allowed() -> None:
    assert ask(IPPOOL) == {"uid": "u-1", "allowed": True, "status": {"metadata": {}, "code": 200}}
    assert ask(CIDRPOOL, rules=review.CIDRPOOL)["allowed"]
    assert ask(CIDRPOOL, "UPDATE", review.CIDRPOOL, oldObject={"spec": {"cidr": "x"}})["allowed"]


def test_every_rule_is_refused_with_its_path() -> None:
    for kind, spec, path in RULES:
        response = ask(spec, rules=review.IPPOOL if kind == "IPPool" else review.CIDRPOOL)
        status = response["status"]
        assert not response["allowed"] and status["code"] == 403 and status["reason"] == "Forbidden"
        assert f"{path}: " in status["message"], (spec, status)


def test_deletions_and_other_operations_are_allowed_unread() -> None:
    assert ask(None, "DELETE", object=None)["allowed"]
    assert ask({"subnet": 5}, "CONNECT")["allowed"]


def test_one_fault_stands_bare_and_several_in_brackets() -> None:
    assert ask({**IPPOOL, "subnet": "10.20.0.0/24", "perNodeBlockSize": 0})["status"]["message"].startswith("spec.")
    assert ask({"subnet": "x", "perNodeBlockSize": 0})["status"]["message"].startswith("[spec.subnet")


def test_what_cannot_be_read_is_refused_with_400() -> None:
    assert ask({"subnet": 5})["status"]["code"] == 400
    for body in (b"", b"{}", b"[]", b"\xff", b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}'):
        answer = review.judge(review.IPPOOL, body, lambda _: [])
        assert answer.code == 400 and not json.loads(answer.body)["response"]["allowed"]
    old = {"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "u"}}
    assert review.judge(review.IPPOOL, json.dumps(old).encode(), lambda _: []).code == 400


def test_warnings_are_cut_to_what_is_passed_on() -> None:
    pool = {"metadata": {"name": "p"}, "spec": IPPOOL}
    body = json.dumps({**API, "request": {"uid": "u", "operation": "CREATE", "object": pool}}).encode()
    answer = review.judge(review.IPPOOL, body, lambda _: ["x" * 1000] * 100)
    found = json.loads(answer.body)["response"]
    assert found["allowed"] and max(map(len, found["warnings"])) <= 256
    assert sum(map(len, found["warnings"])) <= 4096


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@given(st.one_of(st.binary(max_size=200), JSON.map(lambda value: json.dumps(value).encode())))
def test_anything_gets_a_well_formed_answer(body: bytes) -> None:
    for rules in (review.IPPOOL, review.CIDRPOOL):
        found = json.loads(review.judge(rules, body, lambda _: []).body)
        assert isinstance(found["response"]["allowed"], bool)


@given(
    st.sampled_from(["CREATE", "UPDATE"]),
    st.dictionaries(st.sampled_from([*IPPOOL, *CIDRPOOL, "routes", "exclusions", "nodeSelector"]), JSON, max_size=6),
)
def test_any_spec_gets_a_well_formed_answer(operation: str, spec: dict[str, Any]) -> None:
    for rules in (review.IPPOOL, review.CIDRPOOL):
        response = ask(spec, operation, rules)
        assert response["uid"] == "u-1" and isinstance(response["allowed"], bool)
