"""Secret texts, and their removal from everything that people or machines will read.

In: tokens as they are read; texts from outside. Out: texts without them. A `Secret` shows itself only when asked with
`reveal`; a `Scrubber` remembers every secret of its client and takes each out of any text, because servers and proxies
do repeat what they were sent.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

__all__ = ["PLACEHOLDER", "REDACTED", "Scrubber", "Secret"]

REDACTED = "[redacted]"
# A secret shorter than this would blank out ordinary words; it is not a real token.
SHORTEST = 6
PLACEHOLDER = re.compile(r"your-api-token|oxide-token-X{8,}")
"""What manifests, samples and guides have in place of a token. It is not a secret: messages may quote it."""
REMEMBERED = 16
_AUTHORIZATION = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}")
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")


class Secret:
    """A text that is not shown: not by str, repr, format, logs, nor as part of another value."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, to be put into a header and nowhere else."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"Secret({REDACTED})" if self._text else "Secret()"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> Any:
        raise TypeError("a secret is not serialised")


class Scrubber:
    """Takes the secrets it has seen out of texts; the latest sixteen, so that rotation does not grow it without end."""

    def __init__(self) -> None:
        self._known: list[str] = []
        self._latest: Secret | None = None

    def learn(self, secret: Secret) -> None:
        """Remember a secret that is about to be used."""
        if secret is self._latest:
            return
        self._latest = secret
        text = secret.reveal()
        # A server that repeats a URL or a form shows it in its encoded form.
        for form in (text, quote(text, safe="")):
            if len(text) >= SHORTEST and form not in self._known:
                self._known = [*self._known, form][-REMEMBERED:]

    def clean(self, text: str) -> str:
        """The text without any secret."""
        for known in sorted(self._known, key=len, reverse=True):
            text = text.replace(known, REDACTED)
        text = _AUTHORIZATION.sub(rf"\1 {REDACTED}", text)
        return _USER_IN_URL.sub(f"{REDACTED}@", text)

    def clean_data(self, data: Any) -> Any:
        """A decoded JSON value without any secret, in keys and values at any depth."""
        if isinstance(data, str):
            return self.clean(data)
        if isinstance(data, list):
            return [self.clean_data(item) for item in data]
        if isinstance(data, dict):
            return {self.clean(str(key)): self.clean_data(value) for key, value in data.items()}
        return data

    def __repr__(self) -> str:
        return "Scrubber()"
