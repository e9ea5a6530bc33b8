"""Options of a program: addresses to listen on, what is shown of flags."""

from __future__ import annotations

import pytest

from bedplate.program.options import listener, listener_problems, redacted


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("0", None),
        ("", None),
        (":8080", (None, 8080)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:81", ("::1", 81)),
        ("host.example:443", ("host.example", 443)),
    ],
)
def test_addresses_mean_what_they_mean_to_the_original(address: str, wanted: tuple[str | None, int] | None) -> None:
    assert listener(address) == wanted


@pytest.mark.parametrize("address", ["8080", "host", "::1:80", ":http", ":70000", ":-1", "host:"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"is not HOST:PORT|write an IPv6"):
        listener(address)


def test_problems_of_addresses_name_their_flags() -> None:
    assert list(listener_problems({"a": ":80", "b": "80"})) == ["--b: '80' is not HOST:PORT, :PORT or 0"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("https://u:p@host/x", "https://…@host/x"), ("https://host/@x", "https://host/@x"), ("a@b", "a@b"), (3, 3)],
)
def test_credentials_in_addresses_are_not_shown(value: object, expected: object) -> None:
    assert redacted(value) == expected
