"""The rules of a restricted namespace: what its annotations say, as values.

In: custom resources, or the annotations of a Namespace. Out: `NamespaceRules`, and annotations again. Pure. One
annotation per custom resource, one line per fact, so that the expressions of the policies can test for a line:

    rules.charts.brightcomputing.com/john-4k2j9xa: |
      release=john-4k2j9xa
      user=john
      uid=1000
      gid=1000
      path=/home/john/
      allow=all-uids

A user of the namespace cannot change them: no role but cluster-admin may write Namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bedplate.api import permissions
from bedplate.api.permissions import PermissionUser

__all__ = ["NamespaceRules", "RuleSet", "canonical", "is_below", "path_problems"]

RELEASE, USER, UID, GID, PATH, ALLOW = "release=", "user=", "uid=", "gid=", "path=", "allow="
ALL_UIDS, ESCALATION, PRIVILEGED = "all-uids", "escalation", "privileged"


class RuleSet(msgspec.Struct, frozen=True):
    """What one custom resource says about the pods of its namespace."""

    release: str
    user: str
    uid: int = permissions.UNKNOWN
    gids: tuple[int, ...] = ()
    paths: tuple[str, ...] = ()
    """In canonical form: absolute, with a slash at the end."""
    allows: frozenset[str] = frozenset()

    @property
    def has_identity(self) -> bool:
        """Whether UID and GIDs are known. Without them no host path can be allowed: it would be used as nobody
        knows whom."""
        return self.uid >= 0 and bool(self.gids)

    def rule(self, name: str) -> str:
        """The full name of a rule, as refusals and policies show it."""
        return f"{self.release}-{name}"

    def has_path(self, path: str) -> bool:
        """Whether a path of the node is one of the user's, or below one."""
        return any(is_below(path, own) for own in self.paths)

    def text(self) -> str:
        """The annotation."""
        lines = [RELEASE + self.release, USER + self.user]
        lines += [f"{UID}{self.uid}"] if self.uid >= 0 else []
        lines += [f"{GID}{gid}" for gid in self.gids]
        lines += [PATH + path for path in self.paths]
        return "\n".join([*lines, *(ALLOW + word for word in sorted(self.allows))])

    @classmethod
    def of(cls, resource: PermissionUser) -> RuleSet:
        """The rules of a custom resource."""
        spec = resource.spec
        words = (
            (ALL_UIDS, spec.allow_all_uids),
            (ESCALATION, spec.allowPrivilegeEscalation),
            (PRIVILEGED, spec.allowPrivileged),
        )
        gids = spec.gids if all(gid >= 0 for gid in spec.gids) else ()
        return cls(
            release=resource.name,
            user=spec.username,
            uid=max(spec.uid, permissions.UNKNOWN),
            gids=tuple(dict.fromkeys(gids)),
            paths=tuple(dict.fromkeys(canonical(path) for path in spec.user_paths)),
            allows=frozenset(word for word, is_allowed in words if is_allowed),
        )

    @classmethod
    def parse(cls, release: str, text: str) -> RuleSet:
        """The rules of an annotation. What cannot be read allows nothing."""
        lines = text.split("\n")
        uids = [number for number in _numbers(lines, UID) if number >= 0]
        return cls(
            release=release,
            user=next(iter(_values(lines, USER)), ""),
            uid=uids[0] if uids else permissions.UNKNOWN,
            gids=tuple(_numbers(lines, GID)),
            paths=tuple(path for path in _values(lines, PATH) if path.endswith("/")),
            allows=frozenset(_values(lines, ALLOW)),
        )


class NamespaceRules(msgspec.Struct, frozen=True):
    """All rule sets of one namespace, in the order of their names. A pod must comply with every one of them; the UID of
    a pod without host paths may be that of any of the users."""

    sets: tuple[RuleSet, ...] = ()
    needs_strict_groups: bool = True
    """Whether the server knows `supplementalGroupsPolicy`."""
    is_labelled: bool = False
    """The namespace says that it has rules; if it has none, somebody removed them, and no pod is admitted."""

    @property
    def is_restricted(self) -> bool:
        return bool(self.sets) or self.is_labelled

    def annotations(self) -> dict[str, str]:
        """What the Namespace carries."""
        return {permissions.RULES_PREFIX + each.release: each.text() for each in self.sets}

    @classmethod
    def of(cls, resources: Iterable[PermissionUser], *, needs_strict_groups: bool = True) -> NamespaceRules:
        """The rules of a namespace from the custom resources that name it."""
        sets = [RuleSet.of(each) for each in resources if not each.spec.is_cluster_wide]
        return cls(tuple(sorted(sets, key=lambda each: each.release)), needs_strict_groups)

    @classmethod
    def parse(cls, annotations: Mapping[str, str], *, needs_strict_groups: bool = True) -> NamespaceRules:
        """The rules of a namespace from its annotations."""
        prefix = permissions.RULES_PREFIX
        entries = sorted(
            (key.removeprefix(prefix), text) for key, text in annotations.items() if key.startswith(prefix)
        )
        return cls(tuple(RuleSet.parse(release, text) for release, text in entries), needs_strict_groups)

    @classmethod
    def of_namespace(cls, namespace: Mapping[str, Any], *, needs_strict_groups: bool = True) -> NamespaceRules:
        """The rules of a Namespace object in raw form; a namespace without the label has none."""
        metadata = namespace.get("metadata") or {}
        if permissions.LABEL_POD_RULES not in (metadata.get("labels") or {}):
            return cls((), needs_strict_groups)
        parsed = cls.parse(metadata.get("annotations") or {}, needs_strict_groups=needs_strict_groups)
        return msgspec.structs.replace(parsed, is_labelled=True)


def canonical(path: str) -> str:
    """`/home/john/` for `/home//john`, `/home/./john/` and the like; `..` stays, and is below nothing."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/" + "".join(f"{part}/" for part in parts)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is the folder (in canonical form) or below it, part by part."""
    if not path.startswith("/") or ".." in path.split("/"):
        return False
    return canonical(path).startswith(folder)


def path_problems(path: str) -> list[str]:
    """Why a path cannot be a user's."""
    if not path.startswith("/"):
        return [f"the path {path!r} must be absolute"]
    if ".." in path.split("/"):
        return [f"the path {path!r} must not contain '..'"]
    if any(ord(letter) < 32 for letter in path):
        return [f"the path {path!r} must not contain control characters"]
    return []


def _values(lines: Iterable[str], name: str) -> list[str]:
    return [line.removeprefix(name) for line in lines if line.startswith(name)]


def _numbers(lines: Iterable[str], name: str) -> list[int]:
    return [int(value) for value in _values(lines, name) if value.isascii() and value.isdigit()]
