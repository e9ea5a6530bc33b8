"""What an image update may touch on a node: the lists of paths, in rsync's own words. One rule for head and agent.

In: the mode of a transfer, patterns of exclude lists, paths that others own. Out: filter rules for rsync, of which the
first that matches counts. Pure.

    protected   never read, written or deleted, whatever a list says: the agent with its state, what the kernel shows
                as files, the marker of an image, files that the head manages, mounts
    lists       those of the node's category and of its roles, in rsync's patterns; `+ ` lets through what a later
                rule would leave out
    usual       what belongs to a machine and not to an image: its name, its logs, its users' files

Modes are those of exclude list snippets: `sync` at boot, `update` of a running node, `full` wipes, `grab` makes an
image of a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

__all__ = ["IMAGES", "MARKER", "PROTECTED", "USUAL", "Mode", "escaped", "mounts", "rules", "sooner"]

Mode = Literal["sync", "full", "update", "grab"]

IMAGES: Final = "/cm/images"
"""Where images are on a head node, unless its daemon is told another folder."""

MARKER: Final = ".bedplate-image"
"""The file in the root of a tree that makes it an image: a folder without it is never copied anywhere."""

PROTECTED: Final = (
    f"/{MARKER}",
    "/proc/*",
    "/sys/*",
    "/dev/*",
    "/run/*",
    "/var/run/*",
    "/lost+found",
    "/etc/bedplate",
    "/var/lib/bedplate-agent",
    "/var/log/bedplate-agent",
    "/opt/bedplate-agent",
    "/usr/bin/bedplate-agent",
    "/usr/lib/systemd/system/bedplate-agent.service",
    "/etc/systemd/system/bedplate-agent.service",
    "/etc/systemd/system/multi-user.target.wants/bedplate-agent.service",
)
"""Never touched, in any mode. An image need not have the agent, and an update does not take it away."""

_OWN = ("/etc/fstab", "/etc/hostname", "/etc/machine-id")
_KEYS = ("/etc/ssh/ssh_host_*", "/var/lib/systemd/random-seed")
_LEFT = (
    "/tmp/*",
    "/var/tmp/*",
    "/home/*",
    "/root/.ssh",
    "/media/*",
    "/mnt/*",
    "/var/log/*",
    "/var/spool/*",
    "/var/lib/dhcp/*",
    "/var/lib/NetworkManager/*",
    "/etc/adjtime",
)

USUAL: Final[dict[Mode, tuple[str, ...]]] = {
    "sync": (*_OWN, *_KEYS, *_LEFT),
    "update": (*_OWN, *_KEYS, *_LEFT),
    "full": _OWN,
    "grab": (*_OWN, *_KEYS, *_LEFT, "/var/cache/*"),
}
"""What is left alone in each mode, unless a list says otherwise."""

_SYSTEM = frozenset(("/boot", "/boot/efi", "/usr", "/usr/local", "/opt", "/var"))
"""File systems of their own that are part of the machine's system: an image is written into them."""
_WILD = frozenset("*?[")
_LARGEST = "usr"
"""The folder that most files of a system are below."""


def rules(
    mode: Mode, lists: Iterable[str] = (), *, managed: Iterable[str] = (), mounted: Iterable[str] = ()
) -> list[str]:
    """The filter rules of a transfer. A line of a list is a pattern, or one with `- ` or `+ ` before it; empty ones and
    comments (`#`) are left out."""
    owned = [escaped(path) for path in sorted({*managed, *mounted})]
    kept = [f"- {pattern}" for pattern in (*PROTECTED, *owned)]
    # A folder with something protected in it stays, although the other side does not have it.
    kept += sorted({f"P {folder}/" for pattern in (*PROTECTED, *owned) for folder in _folders(pattern)})
    kept += [rule for line in lists if (rule := _rule(line))]
    kept += [f"- {pattern}" for pattern in USUAL[mode]]
    return list(dict.fromkeys(kept))


def sooner(rules: Sequence[str]) -> list[str]:
    """Rules that decide the same with fewer comparisons, for rsync holds every file against all of them: those about
    `/usr` come first, and one after them says that nothing else is about it.

    As they are where a rule may be about any folder: one that is not anchored, or has a wildcard in its first name."""
    tops = [_top(rule) for rule in rules]
    if not all(tops):
        return list(rules)
    about = [rule for rule, top in zip(rules, tops, strict=True) if top == _LARGEST]
    others = [rule for rule, top in zip(rules, tops, strict=True) if top != _LARGEST]
    return [*about, f"+ /{_LARGEST}/**", *others]


def _top(rule: str) -> str:
    """The folder below the root that a rule is about; empty: it may be about any."""
    _, _, pattern = rule.partition(" ")
    name = pattern[1:].partition("/")[0] if pattern.startswith("/") else ""
    return "" if _WILD.intersection(name) or "\\" in name else name


def _folders(pattern: str) -> list[str]:
    """The folders above a path."""
    parts = pattern.split("/")[1:-1]
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _rule(line: str) -> str:
    """A line of an exclude list as a rule. Only these two kinds of rule exist here: none that reads a file."""
    line = line.strip()
    if line in ("", "-", "+") or line.startswith("#") or "\n" in line or "\r" in line or "\0" in line:
        return ""
    if line[:2] in ("- ", "+ "):
        return line
    return f"- {line}"


def escaped(path: str) -> str:
    """A path as a pattern that matches it alone."""
    if not _WILD.intersection(path):
        return path
    return "".join(f"\\{char}" if char in _WILD or char == "\\" else char for char in path)


def mounts(mountinfo: str, root: str = "/") -> list[str]:
    """The mount points below a root that are not part of the machine's system, from `/proc/self/mountinfo`."""
    points = set()
    for line in mountinfo.splitlines():
        words = line.split(" ")
        if len(words) < 5:
            continue
        path = _below(_decoded(words[4]), root.rstrip("/"))
        if path and path not in _SYSTEM:
            points.add(path)
    return sorted(path for path in points if not _is_inside(path, points))


def _below(path: str, root: str) -> str:
    """The path as seen from the root; empty for the root itself, and for what is elsewhere."""
    return path.removeprefix(root) if path.startswith(f"{root}/") and path != "/" else ""


def _is_inside(path: str, others: Iterable[str]) -> bool:
    return any(path.startswith(f"{other}/") for other in others)


def _decoded(word: str) -> str:
    """The kernel writes blanks and the like as octal numbers."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, char)
    return word
