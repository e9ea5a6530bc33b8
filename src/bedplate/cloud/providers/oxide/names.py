"""Names of floating IPs: always the same for the same Service, so that what was made is found again after a crash.

A name is a hint for people and a lock for us (the API refuses a second one of the same name); ownership is proved by
the record in the description alone. Oxide's rule: at most 63 of a-z, A-Z, 0-9 and `-`, a lower-case letter first, no
`-` last, and no UUID. Pure.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from bedplate.cloud.providers.oxide import ownership, providerid

__all__ = ["LIMIT", "Names", "all_names", "is_legal", "kept_name", "legacy_name", "main_name", "names_of"]

LIMIT = 63
_LEGAL = re.compile(r"[a-z]([a-zA-Z0-9-]*[a-zA-Z0-9])?")
_ILLEGAL_CHARACTERS = re.compile(r"[^a-zA-Z0-9-]+")
_REPLACEMENT = "new"


@dataclass(frozen=True, slots=True)
class Names:
    """The names one floating IP of a Service may have.

    `spare` is used while another one has `main`: a foreign one, or the one that is to be replaced; `replacement`
    when that is taken as well.
    """

    main: str
    spare: str
    replacement: str

    @property
    def in_turn(self) -> tuple[str, str, str]:
        return (self.main, self.spare, self.replacement)


def is_legal(name: str) -> bool:
    """Whether Oxide takes it for a name."""
    return len(name) <= LIMIT and _LEGAL.fullmatch(name) is not None and not providerid.is_uuid(name)


def legacy_name(cluster_name: str, namespace: str, name: str) -> str:
    """What the original manager calls the floating IP of a Service: cut at 63, which may make two Services one."""
    return f"{cluster_name}-{namespace}-{name}"[:LIMIT].rstrip("-")


def main_name(cluster_name: str, namespace: str, name: str, suffix: str = "") -> str:
    """The original's name where it is unambiguous; a shortened one with a hash where it had to be cut or corrected."""
    full = f"{cluster_name}-{namespace}-{name}"
    whole = f"{full}-{suffix}" if suffix else full
    if is_legal(whole):
        return whole
    return _with_hash(full, (cluster_name, namespace, name), suffix)


def names_of(cluster_name: str, owner: ownership.Owner, suffix: str = "") -> Names:
    """All names of one floating IP of a Service; `suffix` tells the one of the other family apart."""
    full = f"{cluster_name}-{owner.namespace}-{owner.name}"
    # The cluster's id too: two clusters of one name in one project must not meet a second time.
    source = (cluster_name, owner.cluster, owner.namespace, owner.name)
    tail = f"{_REPLACEMENT}-{suffix}" if suffix else _REPLACEMENT
    return Names(
        main_name(cluster_name, owner.namespace, owner.name, suffix),
        _with_hash(full, source, suffix),
        _with_hash(full, source, tail),
    )


def kept_name(name: str, identifier: str) -> str:
    """A name for a floating IP that is kept while its own name is needed for another one."""
    return _with_hash(name, (identifier,), "")


def all_names(cluster_name: str, owner: ownership.Owner) -> tuple[str, ...]:
    """Every name under which this manager, or the original, may have made something for the Service."""
    single, second = names_of(cluster_name, owner), names_of(cluster_name, owner, "v6")
    legacy = legacy_name(cluster_name, owner.namespace, owner.name)
    names = (legacy, *(name for turn in (single, second) for name in (turn.main, turn.spare, turn.replacement)))
    return tuple(name for name in dict.fromkeys(names) if is_legal(name))


def _with_hash(full: str, source: tuple[str, ...], suffix: str) -> str:
    digest = hashlib.sha256("\0".join(source).encode()).hexdigest()[:10]
    tail = f"-{digest}-{suffix}" if suffix else f"-{digest}"
    head = _ILLEGAL_CHARACTERS.sub("-", full)
    if not head[:1].islower():
        head = f"k-{head}"
    return head[: LIMIT - len(tail)].rstrip("-") + tail
