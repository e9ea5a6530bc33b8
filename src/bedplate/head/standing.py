"""Whether this head is the active one: what the rest of a head asks of an election, or of its absence."""

from __future__ import annotations

from typing import Protocol

from bedplate.core import errors

__all__ = ["Alone", "NotActive", "Standing"]


class NotActive(errors.Unavailable):
    """This head takes no writes; `url` is where the active one serves, if there is one."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(
            f"this head node is passive; {name or 'no other one'} is active",
            hint=f"write to {url}" if url else "try again in some seconds: a head node is about to take over",
            retry_after_s=1.0,
        )
        self.url = url


class Standing(Protocol):
    """What the rest of a daemon asks."""

    @property
    def is_active(self) -> bool: ...

    @property
    def active_name(self) -> str: ...

    @property
    def active_url(self) -> str:
        """Where the active head serves; empty while nobody is known to be."""
        ...

    def refuse_writes(self) -> None:
        """Raise `NotActive` unless this head is certainly the active one now."""
        ...


class Alone:
    """The standing of a head with a store of its own."""

    def __init__(self, name: str, url: str) -> None:
        self.is_active = True
        self.active_name = name
        self.active_url = url

    def refuse_writes(self) -> None:
        return None
