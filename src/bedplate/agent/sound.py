"""What of a desired state can be carried out at all, whoever wrote it.

In: a desired state as the head sent it. Out: the same without what no machine could be, and why each of that is left
out. The types of its fields were checked when it was read; here it is what they say: modes, names, spans. What passes
may still fail when it is tried, and is then told as any other step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from bedplate.api.desired import Desired, File, Flag, Service
from bedplate.api.steps import Failed, Step

__all__ = ["sound"]

_MODE = re.compile(r"[0-7]{1,5}")
_OWNER = re.compile(r"[^\x00-\x20:/\x7f]{1,64}")
_UNIT = re.compile(r"(?![.-])[A-Za-z0-9:_.@\\-]{1,200}")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:~=/-]{0,200}")
_LONGEST_PATH, _LONGEST_NAME = 4000, 240
_LONGEST_S = 10**7
V = TypeVar("V")


def sound(state: Desired) -> tuple[Desired, tuple[Failed, ...]]:
    """What can be tried, and the rest with its reasons; of two things of one name the first counts."""
    refused: list[Failed] = []
    new = msgspec.structs.replace(
        state,
        files=_kept(state.files, "file", "write", lambda file: file.path, _file, refused),
        services=_kept(state.services, "service", "start", lambda service: service.name, _service, refused),
        packages=_kept(state.packages, "package", "install", lambda name: name, _package, refused),
        flags=_kept(state.flags, "flag", "set", lambda flag: flag.name, _flag, refused),
    )
    return (new, tuple(refused)) if refused else (state, ())


def _kept(
    items: Iterable[V],
    kind: str,
    verb: str,
    name: Callable[[V], str],
    fault: Callable[[V], str],
    refused: list[Failed],
) -> tuple[V, ...]:
    kept: dict[str, V] = {}
    for item in items:
        why = fault(item) or ("it is named twice" if name(item) in kept else "")
        if why:
            refused.append(Failed(Step(kind, name(item), verb), f"the head asks for what cannot be: {why}"))
        else:
            kept[name(item)] = item
    return tuple(kept.values())


def _file(file: File) -> str:
    words = file.path.split("/")
    if not file.path.startswith("/") or "\0" in file.path or not words[-1] or {".", ".."} & set(words):
        return f"{file.path!r} is not the absolute path of a file"
    if len(file.path.encode()) > _LONGEST_PATH or any(len(word.encode()) > _LONGEST_NAME for word in words):
        return "its path is too long"
    for mode in (file.mode, *([file.folder_mode] if file.folder_mode else [])):
        if not _MODE.fullmatch(mode) or int(mode, 8) > 0o7777:
            return f"{mode!r} is not a mode"
    for owner in (file.owner, file.group):
        if not _OWNER.fullmatch(owner):
            return f"{owner!r} is not the name of an owner"
    return "a word of its test has a null byte" if any("\0" in word for word in file.test) else ""


def _service(service: Service) -> str:
    if not _UNIT.fullmatch(service.name):
        return f"{service.name!r} is not the name of a service"
    if "\0" in service.sickness_script:
        return "its sickness script has a null byte"
    spans = (service.timeout, service.sickness_timeout, service.sickness_interval)
    return "a span of it is too long" if any(abs(span) > _LONGEST_S for span in spans) else ""


def _package(name: str) -> str:
    return "" if _PACKAGE.fullmatch(name) else f"{name!r} is not the name of a package"


def _flag(flag: Flag) -> str:
    texts = (flag.manifest, flag.container, flag.key, flag.value)
    return "it has a control character" if any(char < " " for text in texts for char in text) else ""
