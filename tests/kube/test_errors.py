"""From answers to typed errors; above all: an error is never absence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.api import meta
from bedplate.api.resources import CONFIG_MAPS, LEASES, NODES
from bedplate.core import errors as core
from bedplate.kube import errors

GET_NODE = errors.Target("GET", NODES.path(name="a"), NODES, "", "a")


def body(code: int, reason: str, **details: object) -> bytes:
    document = {"kind": "Status", "code": code, "reason": reason, "message": f"{reason}!"}
    return json.dumps({**document, "details": details} if details else document).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected", "base"),
    [
        (409, "AlreadyExists", errors.AlreadyExists, core.AlreadyExists),
        (409, "Conflict", errors.Conflict, core.Conflict),
        (422, "Invalid", errors.Invalid, core.Invalid),
        (400, "BadRequest", errors.BadRequest, core.Invalid),
        (401, "Unauthorized", errors.Unauthorized, core.Denied),
        (403, "Forbidden", errors.Forbidden, core.Denied),
        (410, "Gone", errors.Expired, core.Retryable),
        (410, "Expired", errors.Expired, core.Retryable),
        (429, "TooManyRequests", errors.TooManyRequests, core.Unavailable),
        (504, "Timeout", errors.Timeout, core.Unavailable),
        (500, "ServerTimeout", errors.Timeout, core.Unavailable),
        (500, "InternalError", errors.InternalError, core.Unavailable),
        (503, "ServiceUnavailable", errors.ServiceUnavailable, core.Unavailable),
        (405, "MethodNotAllowed", errors.Unsupported, core.Terminal),
        (415, "UnsupportedMediaType", errors.Unsupported, core.Terminal),
        (413, "RequestEntityTooLarge", errors.Unsupported, core.Terminal),
        (418, "Teapot", errors.UnexpectedAnswer, core.Unavailable),
    ],
)
def test_each_reason_has_its_error(code: int, reason: str, expected: type, base: type) -> None:
    error = errors.from_response(GET_NODE, code, body(code, reason))
    assert type(error) is expected
    assert isinstance(error, base)
    assert (error.code, error.reason) == (code, reason)
    assert "nodes a" in str(error)


def test_the_reason_counts_more_than_the_code_and_the_code_counts_when_there_is_no_reason() -> None:
    assert type(errors.from_response(GET_NODE, 409, body(409, "AlreadyExists"))) is errors.AlreadyExists
    assert type(errors.from_response(GET_NODE, 409, body(409, ""))) is errors.Conflict
    assert type(errors.from_response(GET_NODE, 503, b"<html>busy</html>")) is errors.ServiceUnavailable


def test_a_404_about_the_object_is_not_found() -> None:
    error = errors.from_response(GET_NODE, 404, body(404, "NotFound", name="a", kind="nodes"))
    assert isinstance(error, core.NotFound)
    lease = errors.Target("GET", LEASES.path("n", "a"), LEASES, "n", "a")
    found = errors.from_response(
        lease, 404, body(404, "NotFound", name="a", kind="leases", group="coordination.k8s.io")
    )
    assert isinstance(found, core.NotFound)


def test_a_missing_namespace_is_not_found_for_what_would_live_in_it() -> None:
    target = errors.Target("POST", CONFIG_MAPS.path("n"), CONFIG_MAPS, "n", "")
    assert isinstance(
        errors.from_response(target, 404, body(404, "NotFound", name="n", kind="namespaces")), core.NotFound
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"404 page not found\n",
        b"",
        b"{}",
        b"[]",
        b'{"kind":"Status"}',
        b"\xff\xfe",
        body(404, "NotFound"),
        body(404, "NotFound", name="b", kind="nodes"),
        body(404, "NotFound", name="a", kind="pods"),
        body(404, "NotFound", name="a", kind="nodes", group="example.com"),
        body(404, "NotFound", name="n", kind="namespaces"),
        body(404, "", name="a", kind="nodes"),
        body(404, "NotFound", name="a", kind="nodes").replace(b'"Status"', b'"Error"'),
    ],
)
def test_any_other_404_is_not_absence(answer: bytes) -> None:
    error = errors.from_response(GET_NODE, 404, answer)
    assert not isinstance(error, core.NotFound)
    assert isinstance(error, core.Unavailable)


@given(st.integers(300, 599), st.binary(max_size=300))
def test_no_garbage_is_ever_absence_or_a_crash(code: int, garbage: bytes) -> None:
    error = errors.from_response(GET_NODE, code, garbage)
    assert not isinstance(error, core.NotFound)
    assert error.code == code


def test_the_causes_of_an_invalid_object_are_listed() -> None:
    causes = [{"field": "spec.x", "message": "too long"}, {"message": "odd"}]
    error = errors.from_response(GET_NODE, 422, body(422, "Invalid", causes=causes))
    assert isinstance(error, core.Invalid)
    assert error.problems == ("spec.x: too long", "odd")


def test_what_the_server_asked_us_to_wait_is_kept_header_before_details() -> None:
    answer = body(429, "TooManyRequests", retryAfterSeconds=7)
    assert errors.from_response(GET_NODE, 429, answer).retry_after_s == 7
    assert errors.from_response(GET_NODE, 429, answer, 3.0).retry_after_s == 3


def test_errors_say_what_to_do_next() -> None:
    error = errors.from_status(GET_NODE, meta.Status(code=403, reason="Forbidden", message="no"))
    assert "RBAC" in core.describe(error)


def test_exit_codes_are_those_of_the_tree() -> None:
    assert (
        errors.from_response(GET_NODE, 404, body(404, "NotFound", name="a", kind="nodes")).exit_code
        == core.NotFound.exit_code
    )
    assert errors.from_response(GET_NODE, 403, body(403, "Forbidden")).exit_code == core.Denied.exit_code
