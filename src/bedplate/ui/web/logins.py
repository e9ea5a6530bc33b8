"""Who is signed in, and what each has staged.

In: people who proved who they are. Out: logins by the random number in their cookie, each with its own `Session` of
staged edits, a token for its forms, and messages for its next page. All of it is in memory: a daemon that stops takes
the logins and what they staged along. A login ends after hours without a request.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bedplate.core.clock import Clock
from bedplate.head import Secret, Session, Tree

__all__ = ["IDLE_S", "Flash", "Login", "Logins", "Proof"]

IDLE_S = 12 * 3600.0
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Flash:
    """A message for the next page; `tone` is a class of the style sheet."""

    text: str
    tone: str = "info"
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """A bearer token, or a client certificate with its subject."""

    token: Secret | None = None
    subject: Mapping[str, Sequence[str]] = field(default_factory=dict)
    der: bytes = b""


@dataclass(slots=True)
class Login:
    """One browser that is signed in. `lock` keeps the writes of one login apart.

    `proof` is what the user signed in with, to be asked about again at every request: a token or a certificate that was
    revoked, or has expired, ends the login.
    """

    number: str
    user: str
    proof: Proof
    form_token: str
    session: Session
    seen_s: float
    flashes: list[Flash] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_over: bool = False

    def is_form_of(self, token: str) -> bool:
        """Whether a form came from one of this login's pages."""
        return hmac.compare_digest(self.form_token.encode(), token.encode())

    def say(self, text: str, tone: str = "info", hint: str = "") -> None:
        """Show a message on the next page."""
        self.flashes.append(Flash(text, tone, hint))

    def take_flashes(self) -> list[Flash]:
        flashes, self.flashes = self.flashes, []
        return flashes


class Logins:
    """Everybody who is signed in, by cookie; what is old ends."""

    def __init__(self, clock: Clock, number: Callable[[], str] = lambda: secrets.token_urlsafe(32)) -> None:
        self._clock = clock
        self._number = number
        self._held: dict[str, Login] = {}

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, user: str, proof: Proof, tree: Tree) -> Login:
        """A new login, with a number nobody can guess."""
        self._forget_old()
        login = Login(self._number(), user, proof, self._number(), Session(tree), self._clock.monotonic())
        self._held[login.number] = login
        return login

    def find(self, number: str) -> Login | None:
        """The login of a cookie, unless it ended; asking keeps it alive."""
        login = self._held.get(number)
        now = self._clock.monotonic()
        if login is None or now - login.seen_s > IDLE_S:
            self._held.pop(number, None)
            return None
        login.seen_s = now
        return login

    def end(self, login: Login) -> None:
        """Sign out; what was staged is gone, and open streams end."""
        login.is_over = True
        self._held.pop(login.number, None)

    def _forget_old(self) -> None:
        """Drop what ended; when there are too many, first those that staged nothing, the one longest unused first."""
        now = self._clock.monotonic()
        self._held = {number: login for number, login in self._held.items() if now - login.seen_s <= IDLE_S}
        while len(self._held) >= _MOST:
            oldest = min(self._held.values(), key=lambda login: (bool(login.session.edits()), login.seen_s))
            self.end(oldest)
