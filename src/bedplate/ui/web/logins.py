"""Who is signed in, and what each has staged.

In: people who proved who they are. Out: logins by the random number in their cookie, each with its own `Session` of
staged edits, a token for its forms, and messages for its next page. They are in memory and, but for the messages, in
the head's store. A login ends after hours without a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.head import Secret, Session, Sitting, Sittings, Tree

__all__ = ["IDLE_S", "Flash", "Login", "Logins", "Proof"]

IDLE_S = 12 * 3600.0
_MOST = 1000
_KEEP_EVERY_S = 600.0
_LOG = get_logger("head.page")


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
    is_replaced: bool = False
    """Whether another value stands for the login by now: streams that were begun with this one end, for nobody would
    tell them of its end, and browsers open them again."""
    revision: int = 0
    """The revision of its record in the store; 0: it has none."""
    kept_s: float = 0.0

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
    """Everybody who is signed in, by cookie; what is old ends.

    With `sittings` a login is kept in the head's store as well: a daemon that starts again, or another head that takes
    over, finds it there. The store is asked at every request, so that two heads never go apart; while it does not
    answer, what this one knows counts.
    """

    def __init__(
        self,
        clock: Clock,
        sittings: Sittings | None = None,
        number: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        self._clock = clock
        self._sittings = sittings
        self._number = number
        self._held: dict[str, Login] = {}

    def __len__(self) -> int:
        return len(self._held)

    async def begin(self, user: str, proof: Proof, tree: Tree) -> Login:
        """A new login, with a number nobody can guess."""
        self._forget_old()
        login = Login(self._number(), user, proof, self._number(), Session(tree), self._clock.monotonic())
        self._held[login.number] = login
        if self._sittings is not None:
            with contextlib.suppress(errors.Retryable):
                await self._sittings.sweep(self._clock.now().timestamp() - IDLE_S)
        await self.keep(login)
        return login

    async def find(self, number: str, tree: Tree, *, is_seen: bool = True) -> Login | None:
        """The login of a cookie, unless it ended; asking keeps it alive, if it is a person who asks."""
        login = await self._kept(number, tree) if number else None
        now = self._clock.monotonic()
        if login is None or now - login.seen_s > IDLE_S:
            self._held.pop(number, None)
            return None
        if not is_seen:
            return login
        login.seen_s = now
        if now - login.kept_s > _KEEP_EVERY_S:
            await self.keep(login)
        return login

    async def _kept(self, number: str, tree: Tree) -> Login | None:
        login = self._held.get(number)
        if self._sittings is None or (login is not None and login.lock.locked()):
            return login  # a form is being worked on here; it is written down when that is done
        try:
            kept = await self._sittings.read(number)
        except errors.Retryable:
            return login
        if kept is None:
            # Signed out at another head, unless it could not be kept.
            return login if login is not None and not login.revision else None
        if login is None or login.revision != kept.revision:
            if login is not None:
                login.is_replaced = True
            login = self._held[number] = self._restored(number, kept.sitting, kept.seen, tree)
            login.revision = kept.revision
        return login

    def _restored(self, number: str, sitting: Sitting, seen: float, tree: Tree) -> Login:
        token = Secret(sitting.token) if sitting.token else None
        idle_s = max(0.0, self._clock.now().timestamp() - seen)
        proof = Proof(token, sitting.subject, sitting.der)
        seen_s = self._clock.monotonic() - idle_s
        login = Login(number, sitting.user, proof, sitting.form_token, Session(tree), seen_s, kept_s=seen_s)
        try:
            login.session = Session.restored(tree, sitting.staged)
        except (errors.BedplateError, LookupError, TypeError, ValueError) as err:
            _LOG.warning("head.staged_unreadable", user=sitting.user, error=str(err))
            login.say("What was staged could not be read again.", "warning", "Stage it once more.")
        return login

    async def keep(self, login: Login) -> None:
        """Write down a login with what it has staged."""
        if self._sittings is None or login.is_over:
            return
        proof = login.proof
        sitting = Sitting(
            user=login.user,
            form_token=login.form_token,
            token="" if proof.token is None else proof.token.reveal(),
            subject={name: list(values) for name, values in proof.subject.items()},
            der=proof.der,
            staged=login.session.dump(),
        )
        try:
            login.revision = await self._sittings.write(login.number, sitting, self._clock.now().timestamp())
            login.kept_s = self._clock.monotonic()
        except errors.BedplateError as err:
            _LOG.warning("head.login_not_kept", user=login.user, error=str(err))

    async def end(self, login: Login) -> None:
        """Sign out; what was staged is gone, and open streams end."""
        login.is_over = True
        self._held.pop(login.number, None)
        if self._sittings is not None:
            with contextlib.suppress(errors.Retryable):
                await self._sittings.remove(login.number)

    def _forget_old(self) -> None:
        """Drop what ended; when there are too many, first those that staged nothing, the one longest unused first."""
        now = self._clock.monotonic()
        self._held = {number: login for number, login in self._held.items() if now - login.seen_s <= IDLE_S}
        while len(self._held) >= _MOST:
            oldest = min(self._held.values(), key=lambda login: (bool(login.session.edits()), login.seen_s))
            oldest.is_replaced = True
            oldest.is_over = self._sittings is None
            del self._held[oldest.number]
