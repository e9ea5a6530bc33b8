"""What the machine of an agent is: its distribution, how packages come to it, its size, whether it has to start again.

In: `/etc/os-release`, `/proc/meminfo`, the markers that package managers leave. Out: `headapi.System` for the head, or
None in a sandbox, which is part of a machine and says nothing of its own. What cannot be read is left empty.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from bedplate.agent.apply import Effects
from bedplate.agent.files import FileProblem, Root
from bedplate.api import headapi

__all__ = ["MARKERS", "look", "of_release"]

OS_RELEASE = "/etc/os-release"
MARKERS = ("/run/reboot-required", "/var/run/reboot-required", "/run/reboot-needed")
"""Files that say that the machine has to start again: those of Debian and Ubuntu, and that of zypper. Where a package
manager leaves none, as dnf, a site can make the first one."""
_MEMINFO = "/proc/meminfo"
_ID, _VERSION = re.compile(r"[a-z0-9._-]{1,64}"), re.compile(r"[0-9A-Za-z._~+-]{1,64}")
_MEMORY = re.compile(r"(?m)^MemTotal:\s+(\d{1,12}) kB$")


def look(effects: Effects, *, is_machine: bool | None = None, meminfo: str = _MEMINFO) -> headapi.System | None:
    """`is_machine` is there for tests: a sandbox counts as a machine."""
    root = effects.root
    if not (root.is_machine if is_machine is None else is_machine):
        return None
    release = of_release(_read(_place(root, OS_RELEASE)))
    memory = _MEMORY.search(_read(meminfo))
    return headapi.System(
        id=release.get("ID", ""),
        version=release.get("VERSION_ID", ""),
        packages=getattr(effects.packages, "family", ""),
        memory=int(memory[1]) * 1024 if memory is not None else 0,
        disk=_disk(root),
        cores=os.cpu_count() or 0,
        reboot=any(os.path.exists(_place(root, path)) for path in MARKERS),
    )


def of_release(text: str) -> Mapping[str, str]:
    """ID and VERSION_ID of an os-release; what has not their form is left out. Pure."""
    rows = [line.partition("=") for line in text.splitlines()]
    values = {key.strip(): value.strip().strip("'\"") for key, _, value in rows}
    forms = {"ID": _ID, "VERSION_ID": _VERSION}
    return {key: values[key] for key, form in forms.items() if form.fullmatch(values.get(key, ""))}


def _place(root: Root, path: str) -> str:
    """Where a path is; nowhere for one whose folders are links in a circle: a report must not fail for it."""
    try:
        return root.place(path)
    except FileProblem:
        return ""


def _disk(root: Root) -> int:
    try:
        about = os.statvfs(os.path.dirname(_place(root, OS_RELEASE)))
    except OSError:
        return 0
    return about.f_blocks * about.f_frsize


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as stream:
            return stream.read(1 << 16)
    except OSError:
        return ""
