"""A token fetched from an identity provider with the client's own credentials (OAuth 2.0 client credentials).

In: token URL, client id and secret (a value or a file). Out: an access token, fetched again before it expires and
after a 401. One fetch at a time, however many calls wait for it; after a failed one the next is made only after a
wait that grows, so that a refused client does not hammer the identity provider.
"""

from __future__ import annotations

import asyncio
import base64
import random
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_plus, urlencode

import msgspec

from bedplate.cloud.http.secrets import Scrubber, Secret
from bedplate.cloud.http.tokens import Reloads, TokenUnavailable, whole_text
from bedplate.cloud.http.transport import Broken, Exchange, Reach, Transport
from bedplate.core import clock
from bedplate.core.backoff import Backoff

__all__ = ["ClientCredentials", "OidcOptions"]

DEFAULT_LIFE_S = 300.0
# Renewed when this part of its life is over: a clock that is off, or a slow call, must not meet an expired token.
RENEW_AT = 0.8


@dataclass(frozen=True, slots=True)
class OidcOptions:
    """Where a token is fetched and as whom; `secret` or the content of `secret_file`."""

    token_url: str
    client_id: str
    secret: Secret
    secret_file: Path | None = None
    scopes: tuple[str, ...] = ()
    timeout_s: float = 15.0


class ClientCredentials:
    """The token source of one client at one identity provider."""

    def __init__(
        self,
        options: OidcOptions,
        reach: Reach,
        *,
        time: clock.Clock,
        rng: random.Random,
        reloads: Reloads | None = None,
        user_agent: str = "",
    ) -> None:
        self._options = options
        self._transport = Transport(reach, time)
        self._time = time
        self._reloads = reloads if reloads is not None else lambda result: None
        self._user_agent = user_agent
        self._token = Secret("")
        self._renew_at = self._expires_at = self._not_before = float("-inf")
        self._failure = ""
        self._backoff = Backoff(first_s=1.0, cap_s=60.0, jitter=0.5, rng=rng)
        self._turn = asyncio.Lock()
        self._is_secret_in_body = False

    async def current(self) -> Secret:
        if self._time.monotonic() >= self._renew_at:
            async with self._turn:
                if self._time.monotonic() >= self._renew_at:
                    await self._fetch()
        if not self._token or self._time.monotonic() >= self._expires_at:
            raise TokenUnavailable(f"{self._options.token_url} did not issue a token: {self._failure}")
        return self._token

    async def renew(self, refused: Secret) -> bool:
        async with self._turn:
            if self._token == refused:
                await self._fetch()
        return bool(self._token) and self._token != refused

    async def close(self) -> None:
        await self._transport.close()

    async def _fetch(self) -> None:
        """Get a token; on failure keep the last one and remember why."""
        now = self._time.monotonic()
        if now < self._not_before:
            return
        is_first = not self._token
        try:
            token, life_s = await self._ask()
        except TokenUnavailable as err:
            self._failure = str(err)
            self._not_before = self._time.monotonic() + self._backoff.next()
            self._reloads("error")
            return
        self._backoff.reset()
        if not is_first:
            self._reloads("changed" if token != self._token else "unchanged")
        self._token, self._expires_at, self._renew_at = token, now + life_s, now + life_s * RENEW_AT

    async def _ask(self) -> tuple[Secret, float]:
        secret = await self._secret()
        scrubber = Scrubber()
        scrubber.learn(secret)
        try:
            answer = await self._post(secret)
            # RFC 6749 prefers the header; some identity providers know the body only, and say "invalid client".
            if answer.status in (400, 401) and not self._is_secret_in_body:
                self._is_secret_in_body = True
                answer = await self._post(secret)
                self._is_secret_in_body = answer.status == 200
        except Broken as err:
            raise TokenUnavailable(scrubber.clean(err.reason)) from None
        return _token_in(answer, scrubber)

    async def _post(self, secret: Secret) -> Exchange:
        options = self._options
        form = {"grant_type": "client_credentials"}
        if options.scopes:
            form["scope"] = " ".join(options.scopes)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self._user_agent:
            headers["User-Agent"] = self._user_agent
        if self._is_secret_in_body:
            form |= {"client_id": options.client_id, "client_secret": secret.reveal()}
        else:
            pair = f"{quote_plus(options.client_id)}:{quote_plus(secret.reveal())}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        body = urlencode(form).encode()
        return await self._transport.exchange("POST", options.token_url, headers, body, options.timeout_s)

    async def _secret(self) -> Secret:
        file = self._options.secret_file
        if file is None:
            return self._options.secret
        try:
            return Secret(whole_text(await asyncio.to_thread(file.read_text, encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as err:
            reason = err.strerror if isinstance(err, OSError) else "not text"
        raise TokenUnavailable(f"the client secret in {file} cannot be read: {reason}")


def _token_in(answer: Exchange, scrubber: Scrubber) -> tuple[Secret, float]:
    try:
        content = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = None
    fields = content if isinstance(content, dict) else {}
    token, life = fields.get("access_token"), fields.get("expires_in")
    if answer.status != 200 or not isinstance(token, str) or not token:
        reason = fields.get("error_description") or fields.get("error") or "no token in the response"
        raise TokenUnavailable(f"status {answer.status}: {scrubber.clean(str(reason))[:200]}")
    if not isinstance(life, int | float) or isinstance(life, bool) or life <= 0:
        life = DEFAULT_LIFE_S
    return Secret(token), float(life)
