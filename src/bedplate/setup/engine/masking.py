"""Secrets as stars in everything that a setup tool says, writes to its log or shows.

In: the secrets known so far, and a text. Out: the text without them. Secrets of a form that is known (private keys,
tokens of kubeadm, bearer tokens, passwords within URLs) are masked without being named. Each line of a secret with
several lines is masked as well, for output is cut into lines before it comes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["STARS", "Masker"]

STARS = "********"
_FORMS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), STARS),
    (re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"), STARS),
    (re.compile(r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]{8,}"), rf"\1{STARS}"),
    (re.compile(r"(://[^/\s:@]+:)[^/\s@]+(@)"), rf"\1{STARS}\2"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"), STARS),
)
_SHORTEST_LINE = 4


class Masker:
    """Knows the secrets of a run."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Mask this text from now on."""
        if not secret.strip():
            return
        lines = {line.strip() for line in secret.splitlines()}
        self._secrets |= {secret, *(line for line in lines if len(line) >= _SHORTEST_LINE)}
        # The longest first: a secret may be part of another one.
        ordered = sorted(self._secrets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)))

    def __call__(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(STARS, text)
        for form, stars in _FORMS:
            text = form.sub(stars, text)
        return text
