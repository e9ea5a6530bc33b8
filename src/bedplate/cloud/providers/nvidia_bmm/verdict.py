"""What a 404 of the BMM API says about an instance. Pure; the table below is the only door to absence.

In: the decoded error body. Out: a `Verdict`. BMM answers 404 for an instance that is gone, but also for an unknown
path, and proxies answer so for reasons of their own; only a body of BMM's own form that speaks of the instance counts.
"""

from __future__ import annotations

import enum
import re
from typing import Any

__all__ = ["Verdict", "of_not_found"]

SOURCE = "carbide"
_ROUTE = "requested path"
# Something else could not be found on the way to the instance: then a list has to confirm it.
_OTHER_THING = re.compile(
    r"\b(instance\s*types?|sites?|tenants?|orgs?|organi[sz]ations?|machines?|vpcs?|paths?|routes?)\b"
)


class Verdict(enum.Enum):
    """What is known after a 404."""

    ABSENT = "the API says of this very instance that it could not be found"
    ABSENT_IF_UNLISTED = "the API could not find something; a complete list of this moment must lack the instance too"
    NO_ANSWER = "this is not an answer about an instance: the endpoint, the API's name or its version is wrong"


def of_not_found(body: Any) -> Verdict:
    """Judge the body of a 404 that answered `get-instance`."""
    if not isinstance(body, dict) or body.get("source") != SOURCE:
        return Verdict.NO_ANSWER
    message = body.get("message")
    if not isinstance(message, str):
        return Verdict.NO_ANSWER
    text = message.lower()
    if not text.strip() or _ROUTE in text:
        return Verdict.NO_ANSWER
    if "instance" in text and "find" in text and not _OTHER_THING.search(text):
        return Verdict.ABSENT
    return Verdict.ABSENT_IF_UNLISTED
