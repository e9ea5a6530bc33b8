"""Secrets on their way in: a mask in a written object stands for what the head has at that place.

In: an object as somebody wrote it, and the one that is there. Out: the object with its secrets; `Invalid` names every
mask that stands for nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bedplate.client.wire import MASK
from bedplate.core import errors
from bedplate.head.objects import Obj, Secret, Value

__all__ = ["unmasked"]


def unmasked(new: Obj, held: Obj | None, where: str) -> Obj:
    """The object with the secrets of `held` where it says stars. Raises `Invalid`."""
    lacking: list[str] = []
    made = _unmasked(new, held, where, lacking)
    if lacking:
        raise errors.Invalid(
            f"{MASK} keeps a secret, but none is set",
            hint="write the secret itself, or leave the field out",
            problems=lacking,
        )
    return made


def _unmasked(new: Obj, held: Obj | None, where: str, lacking: list[str]) -> Obj:
    same = held if held is not None and held.type == new.type else None
    values: dict[str, Value] = {}
    for name, value in new.values.items():
        values[name] = value
        if isinstance(value, Secret) and value.reveal() == MASK:
            kept = same.values.get(name) if same is not None else None
            if isinstance(kept, Secret):
                values[name] = kept
            else:
                lacking.append(f"{where}.{name} is not set")
    children: dict[str, Mapping[str, Obj]] = {}
    for submode, inner in new.children.items():
        below = same.below(submode) if same is not None else {}
        children[submode] = {
            key: _unmasked(child, below.get(key), f"{where}->{submode}[{key}]", lacking) for key, child in inner.items()
        }
    return replace(new, values=values, children=children)
