"""`options`: flags for the containers of static pods, in the kubelet role."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from bedplate.core import errors
from bedplate.head import Path
from bedplate.head.entities.roles import MANIFESTS, KubeletOption
from bedplate.head.schema.entity import Field
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, command
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Table

__all__: list[str] = []

_ROLE = "kubelet"
_FOLDER = "/etc/kubernetes/manifests"


def _near_kubelet(desk: Desk) -> str:
    if desk.is_at_object and desk.get(desk.place).type == "KubeletRole":
        return ""
    if desk.place[-1:] == ("roles",):
        return ""
    return "options works in the role kubelet: enter roles, then use kubelet"


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    words = list(args.words)
    if desk.place and not desk.is_at_object:
        if not words:
            return [(_ROLE, "the role")]
        words.pop(0)
    if not words:
        return [(name, "manifest") for name in MANIFESTS]
    return [("set", "put a flag"), ("clear", "remove a flag")] if len(words) == 1 else ()


@command(
    "options",
    "Manage kubelet container command options",
    "options [kubelet]",
    "options [kubelet] <filename>",
    "options [kubelet] <filename> set [name] key=value",
    "options [kubelet] <filename> set [name] key",
    "options [kubelet] <filename> clear [name] key",
    options=[VERBOSE, DELIMITER],
    examples=[("options kube-apiserver.yaml set advertise-address=192.168.200.148", "")],
    where=_near_kubelet,
    words=_words,
    most=None,
)
async def _options(desk: Desk, args: Arguments) -> None:
    role, words = _role(desk, list(args.words))
    if not words:
        desk.table(_table(desk, role, ""), args)
        return
    filename = _manifest(words[0])
    if len(words) == 1:
        desk.table(_table(desk, role, filename), args)
        return
    verb, rest = words[1], words[2:]
    if verb not in ("set", "clear") or not 1 <= len(rest) <= 2:
        raise Usage(f"options {filename} {verb} is not valid", hint="help options shows the forms")
    container = rest[0] if len(rest) == 2 else filename.removesuffix(".yaml")
    if verb == "set":
        key, _, value = rest[-1].partition("=")
        _put(desk, role, filename, container, key, value)
    else:
        _clear(desk, role, filename, container, rest[-1])


def _role(desk: Desk, words: list[str]) -> tuple[Path, list[str]]:
    """The role, and the words behind its name, which is needed at a list alone."""
    if desk.is_at_object:
        return desk.place, words[1:] if words and words[0].lower() == _ROLE else words
    if not words or words[0].lower() != _ROLE:
        raise Usage("options needs the role's name here", hint="options kubelet ...")
    return desk.find(desk.place, _ROLE), words[1:]


def _manifest(word: str) -> str:
    folder, name = posixpath.split(word)
    if name not in MANIFESTS or folder not in ("", _FOLDER):
        raise errors.NotFound(f"there is no manifest {word!r}", hint=f"in {_FOLDER} are {', '.join(MANIFESTS)}")
    return name


def _cells(desk: Desk, path: Path) -> tuple[str, str, str, str]:
    option = desk.get(path)
    fields = (KubeletOption.filename, KubeletOption.container, KubeletOption.key, KubeletOption.value)
    filename, container, key, value = (str(field.value(option) or "") for field in fields)
    return filename, container or filename.removesuffix(".yaml"), key, value


def _held(desk: Desk, role: Path) -> list[tuple[Path, tuple[str, str, str, str]]]:
    place_of = (*role, "options")
    keys = sorted(desk.session.children(place_of), key=int)
    return [((*place_of, key), _cells(desk, (*place_of, key))) for key in keys]


def _table(desk: Desk, role: Path, filename: str) -> Table:
    rows = sorted(list(cells) for _, cells in _held(desk, role) if filename in ("", cells[0]))
    return Table(["Filename", "Container", "Key", "Value"], rows, uncut=frozenset({0, 1, 2}))


def _put(desk: Desk, role: Path, filename: str, container: str, key: str, value: str) -> None:
    for path, cells in _held(desk, role):
        if cells[:3] == (filename, container, key):
            desk.session.set(path, "value", value)
            return
    if not key:
        raise Usage("a flag needs a name", hint="options FILE set key=value")
    fields = (KubeletOption.key, KubeletOption.value)
    for field, text in zip(fields, (key, value), strict=True):
        assert isinstance(field, Field)
        field.parse(text)
    own = "" if container == filename.removesuffix(".yaml") else container
    desk.session.add_indexed((*role, "options"), [filename, own, key, value])


def _clear(desk: Desk, role: Path, filename: str, container: str, key: str) -> None:
    for path, cells in _held(desk, role):
        if cells[:3] == (filename, container, key):
            desk.session.remove(path)
            return
    raise errors.NotFound(f"{filename} has no flag {key!r} in container {container}", hint="options lists them")
