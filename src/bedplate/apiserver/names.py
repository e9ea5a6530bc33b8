"""The forms of names in Kubernetes: DNS labels and subdomains, qualified names, label values.

In: text. Out: what is wrong with it, in the words of the real server; nothing when it is fine.
"""

from __future__ import annotations

import re

__all__ = ["dns_1035_label", "dns_label", "dns_subdomain", "label_value", "path_segment", "qualified_name"]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character "
    f"(e.g. 'my-name',  or 'abc-123', regex used for validation is '{_LABEL_1035}')"
)
_QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)


def _faults(text: str, limit: int, pattern: str, words: str) -> list[str]:
    faults = [f"must be no more than {limit} bytes"] if len(text) > limit else []
    return faults if re.fullmatch(pattern, text) else [*faults, words]


def dns_subdomain(text: str) -> list[str]:
    return _faults(text, 253, _SUBDOMAIN, _SUBDOMAIN_TEXT)


def dns_label(text: str) -> list[str]:
    return _faults(text, 63, _LABEL, _LABEL_TEXT)


def dns_1035_label(text: str) -> list[str]:
    return _faults(text, 63, _LABEL_1035, _LABEL_1035_TEXT)


def label_value(text: str) -> list[str]:
    return _faults(text, 63, _VALUE, _VALUE_TEXT)


def path_segment(text: str) -> list[str]:
    """A name that may stand in a URL path, as those of roles."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{letter}'" for letter in "/%" if letter in text]


def qualified_name(text: str) -> list[str]:
    """`name` or `example.com/name`: keys of labels and annotations, finalizers."""
    prefix, slash, name = text.rpartition("/")
    faults: list[str] = []
    if slash:
        faults += (
            [f"prefix part {fault}" for fault in dns_subdomain(prefix)] if prefix else ["prefix part must be non-empty"]
        )
    if not name:
        return [*faults, "name part must be non-empty"]
    if len(name) > 63:
        faults.append("name part must be no more than 63 bytes")
    return faults if re.fullmatch(_QUALIFIED, name) else [*faults, _QUALIFIED_TEXT]
