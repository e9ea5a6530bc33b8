"""Errors tell what happened, why, and what to do next."""

from bedplate.core import errors


def test_an_invalid_input_lists_every_problem() -> None:
    error = errors.Invalid("pool.yaml is not usable", problems=["subnet: missing", "gateway: not in subnet"])
    assert str(error) == "pool.yaml is not usable:\n  - subnet: missing\n  - gateway: not in subnet"


def test_describe_shows_causes_and_the_next_step() -> None:
    try:
        try:
            raise ConnectionRefusedError("connection refused")
        except ConnectionRefusedError as err:
            raise errors.Unavailable("cannot reach the API server", hint="start it with `bedplate up`") from err
    except errors.Unavailable as err:
        text = errors.describe(err)
    assert text.splitlines() == [
        "cannot reach the API server",
        "  because: connection refused",
        "  next: start it with `bedplate up`",
    ]


def test_only_retryable_errors_carry_a_time_to_wait() -> None:
    assert errors.Unavailable("x", retry_after_s=3).retry_after_s == 3
    assert isinstance(errors.Conflict("x"), errors.Retryable)
    assert not isinstance(errors.NotFound("x"), errors.Retryable)


def test_the_only_error_of_nested_groups_is_found_with_its_cause() -> None:
    error = errors.Unavailable("no answer")
    error.__cause__ = OSError("refused")
    group = BaseExceptionGroup("outer", [ExceptionGroup("inner", [error])])
    found = errors.only(group)
    assert found is error
    assert "because: refused" in errors.describe(found)


def test_a_bug_among_errors_is_not_dropped() -> None:
    assert errors.only(BaseExceptionGroup("both", [errors.Invalid("x"), ZeroDivisionError()])) is None
