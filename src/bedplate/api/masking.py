"""Text that people pass on, without what must stay secret.

In: text of logs, manifests and settings. Out: the same, with private keys, tokens, passwords and the keys of
kubeconfigs as stars. Pure. It prefers to hide too much: a digest may be taken for a secret, never the other way round.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["STARS", "masked"]

STARS: Final = "*****"

_RULES: Final = (
    (
        re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        rf"\1{STARS}\2",
    ),
    (re.compile(r"(?i)((?:client-key|token)-data:?\s*[\"']?)[A-Za-z0-9+/=]{8,}"), rf"\1{STARS}"),
    (re.compile(r"(?i)(\b(?:authorization:\s*)?bearer\s+)[A-Za-z0-9._~+/=-]{8,}"), rf"\1{STARS}"),
    (re.compile(r"\b([a-z0-9]{6})\.[a-z0-9]{16}\b"), rf"\1.{STARS}"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"), STARS),
    (
        re.compile(
            r"(?i)([\w.-]*(?:password|passwd|secret|token|api[_-]?key|certificate-key|private[_-]?key)[\w-]*[\"']?\s*[:=]\s*[\"']?)"
            r"(?![\"'\s/]|true\b|false\b|null\b|\*)[^\s\"',;]+"
        ),
        rf"\1{STARS}",
    ),
    (re.compile(r"(\w+://[^\s/:@]+:)[^\s/@]+@"), rf"\1{STARS}@"),
)


def masked(text: str) -> str:
    """The text without secrets."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
