"""Provider IDs of Oxide: `oxide://` and the instance's UUID, and nothing else.

The text is written once into a Node and can never be changed, so neither can this format. Letter case is kept as
given; ids are compared without it (`same`, `fold`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from bedplate.core import errors

__all__ = ["SCHEME", "fold", "format_id", "instance_id", "is_uuid", "same"]

SCHEME = "oxide"
_PREFIX = SCHEME + "://"
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    """Whether the text is a UUID in its usual form."""
    return _UUID.fullmatch(text) is not None


@lru_cache(maxsize=16384)
def instance_id(provider_id: str) -> str:
    """The instance a provider ID names; raises `Invalid` with what is wrong with it."""
    if not provider_id:
        raise errors.Invalid("provider id is empty")
    if not provider_id.startswith(_PREFIX):
        raise errors.Invalid(f"provider id {provider_id!r} does not have '{_PREFIX}' prefix")
    uuid_text = provider_id.removeprefix(_PREFIX)
    if not is_uuid(uuid_text):
        raise errors.Invalid(f"provider id {provider_id!r} contains invalid uuid {uuid_text!r}")
    return uuid_text


def format_id(instance: str) -> str:
    """The provider ID of an instance."""
    return _PREFIX + instance


def fold(uuid: str) -> str:
    """The form in which two ids are compared."""
    return uuid.lower()


def same(left: str | None, other: str | None) -> bool:
    """Whether both name one thing; nothing is the same as nothing else."""
    return bool(left) and bool(other) and fold(left or "") == fold(other or "")
