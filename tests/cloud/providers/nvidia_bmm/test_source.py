"""Which 404 speaks of an instance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.cloud.providers.nvidia_bmm.source import Verdict, of_not_found


def body(message: Any, source: Any = "carbide") -> dict[str, Any]:
    return {"source": source, "message": message, "data": None}


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        (body("Could not find Instance with specified ID"), Verdict.ABSENT),
        (body("could not FIND INSTANCE with specified id"), Verdict.ABSENT),
        (body("Could not find resource with specified ID"), Verdict.ABSENT_IF_UNLISTED),
        (body("Could not find Instance Type with specified ID"), Verdict.ABSENT_IF_UNLISTED),
        (body("Could not find Tenant of Instance"), Verdict.ABSENT_IF_UNLISTED),
        (body("Could not find Site for Instance"), Verdict.ABSENT_IF_UNLISTED),
        (body("Not Found"), Verdict.ABSENT_IF_UNLISTED),
        (body("The requested path could not be found"), Verdict.NO_ANSWER),
        (body("Could not find Instance: the requested path could not be found"), Verdict.NO_ANSWER),
        (body("Could not find Instance with specified ID", source=None), Verdict.NO_ANSWER),
        (body("Could not find Instance with specified ID", source="proxy"), Verdict.NO_ANSWER),
        ({"message": "Could not find Instance with specified ID"}, Verdict.NO_ANSWER),
        (body(None), Verdict.NO_ANSWER),
        (body(""), Verdict.NO_ANSWER),
        (body(["Could not find Instance"]), Verdict.NO_ANSWER),
        ({}, Verdict.NO_ANSWER),
        ([body("Could not find Instance with specified ID")], Verdict.NO_ANSWER),
        ("Could not find Instance with specified ID", Verdict.NO_ANSWER),
        (None, Verdict.NO_ANSWER),
    ],
)
def test_what_the_body_of_a_404_says(content: Any, verdict: Verdict) -> None:
    assert of_not_found(content) is verdict


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(_json)
def test_nothing_that_is_not_of_the_apis_own_form_speaks_of_an_instance(content: Any) -> None:
    is_own = isinstance(content, dict) and content.get("source") == "carbide"
    assert is_own or of_not_found(content) is Verdict.NO_ANSWER


@given(_json, st.sampled_from(["carbide", "Carbide", ""]))
def test_only_a_text_that_names_the_instance_is_enough_by_itself(message: Any, source: str) -> None:
    if of_not_found(body(message, source)) is Verdict.ABSENT:
        assert source == "carbide" and "instance" in message.lower() and "find" in message.lower()
