"""Unit files as our own supervisor understands them: the part of systemd's format that services use.

In: the text of a unit and of its drop-ins, environment files, the environment. Out: `Unit`, and command lines as lists
of words. Settings that are not known here are named in `Unit.ignored`. Pure but for `load`, which reads the files.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bedplate.agent.files import FileProblem, Root

__all__ = [
    "FOLDERS",
    "Command",
    "Unit",
    "UnitProblem",
    "environment_of",
    "load",
    "parse",
    "seconds",
    "split",
    "transient",
]

_OWN, _SYSTEMDS = "/run/bedplate-agent/units", "/run/systemd/system"
FOLDERS = (
    "/etc/systemd/system",
    _OWN,
    _SYSTEMDS,
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""Where units are, the first wins; drop-ins are taken from all of them."""

_PREFIXES = "-@:+!"
_UNSET_S = -1.0
_SPAN = re.compile(
    r"(\d+(?:\.\d+)?)\s*(usec|us|msec|ms|seconds?|sec|s|minutes?|min|m|hours?|hr|h|days?|d)?(?![a-z])\s*"
)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class UnitProblem(Exception):
    """A unit cannot be understood."""


class Command(NamedTuple):
    """One command; `may_fail`: its failure is none of the service."""

    words: tuple[str, ...]
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """A service: the settings that are used, and the names of the others."""

    name: str
    type: str = "simple"
    start: tuple[str, ...] = ()
    start_pre: tuple[str, ...] = ()
    start_post: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    stop_post: tuple[str, ...] = ()
    reload: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    environment_files: tuple[str, ...] = ()
    user: str = ""
    group: str = ""
    working_directory: str = ""
    umask: str = "0022"
    open_files: str = ""
    restart: str = "no"
    restart_s: float = 0.1
    start_timeout_s: float = 90.0
    stop_timeout_s: float = 90.0
    kill_mode: str = "control-group"
    kill_signal: str = "SIGTERM"
    pid_file: str = ""
    remains: bool = False
    success: tuple[str, ...] = ()
    runtime_folders: tuple[str, ...] = ()
    state_folders: tuple[str, ...] = ()
    logs_folders: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    files: tuple[str, ...] = field(default=(), compare=False)


_LISTS = {
    ("Service", "ExecStart"): "start",
    ("Service", "ExecStartPre"): "start_pre",
    ("Service", "ExecStartPost"): "start_post",
    ("Service", "ExecStop"): "stop",
    ("Service", "ExecStopPost"): "stop_post",
    ("Service", "ExecReload"): "reload",
    ("Service", "Environment"): "environment",
    ("Service", "EnvironmentFile"): "environment_files",
}
_WORDS = {
    ("Service", "SuccessExitStatus"): "success",
    ("Service", "RuntimeDirectory"): "runtime_folders",
    ("Service", "StateDirectory"): "state_folders",
    ("Service", "LogsDirectory"): "logs_folders",
    ("Unit", "Requires"): "requires",
    ("Unit", "BindsTo"): "requires",
    ("Unit", "Wants"): "wants",
    ("Unit", "After"): "after",
}
_TEXTS = {
    ("Service", "Type"): "type",
    ("Service", "User"): "user",
    ("Service", "Group"): "group",
    ("Service", "WorkingDirectory"): "working_directory",
    ("Service", "UMask"): "umask",
    ("Service", "LimitNOFILE"): "open_files",
    ("Service", "Restart"): "restart",
    ("Service", "KillMode"): "kill_mode",
    ("Service", "KillSignal"): "kill_signal",
    ("Service", "PIDFile"): "pid_file",
}
_SPANS = {
    ("Service", "RestartSec"): ("restart_s",),
    ("Service", "TimeoutStartSec"): ("start_timeout_s",),
    ("Service", "TimeoutStopSec"): ("stop_timeout_s",),
    ("Service", "TimeoutSec"): ("start_timeout_s", "stop_timeout_s"),
}
_TYPES = ("simple", "exec", "notify", "notify-reload", "forking", "oneshot", "idle", "dbus")
_SILENT = ("Install",)


def parse(name: str, texts: Sequence[str], files: Sequence[str] = ()) -> Unit:
    """A unit from its text and those of its drop-ins, in order. Raises `UnitProblem`."""
    lists: dict[str, list[str]] = {}
    values: dict[str, str | float | bool] = {}
    ignored: dict[str, None] = {}
    for text in texts:
        for section, key, value in _settings(text):
            place = (section, key)
            if place in _LISTS:
                _added(lists, _LISTS[place], [value] if value else [])
            elif place in _WORDS:
                _added(lists, _WORDS[place], split(value))
            elif place in _TEXTS:
                values[_TEXTS[place]] = _specified(value, name)
            elif place in _SPANS:
                values.update((attribute, seconds(value)) for attribute in _SPANS[place])
            elif place == ("Service", "RemainAfterExit"):
                values["remains"] = value.lower() in ("yes", "true", "on", "1")
            elif section not in _SILENT:
                ignored[key] = None
    unit = Unit(
        name,
        **{attribute: tuple(items) for attribute, items in lists.items()},  # type: ignore[arg-type]
        **values,  # type: ignore[arg-type]
        ignored=tuple(ignored),
        files=tuple(files),
    )
    _check(unit)
    return unit


def _added(lists: dict[str, list[str]], attribute: str, items: Sequence[str]) -> None:
    """Items are added to a list; an empty setting empties it."""
    if items:
        lists.setdefault(attribute, []).extend(items)
    else:
        lists[attribute] = []


def _check(unit: Unit) -> None:
    if unit.type not in _TYPES:
        raise UnitProblem(f"{unit.name}.service: Type={unit.type} is not known")
    if not unit.start and not (unit.type == "oneshot" and unit.stop):
        raise UnitProblem(f"{unit.name}.service has no ExecStart=")
    if len(unit.start) > 1 and unit.type != "oneshot":
        raise UnitProblem(f"{unit.name}.service has more than one ExecStart=")


def _settings(text: str) -> list[tuple[str, str, str]]:
    settings = []
    section, pending = "", ""
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped.startswith(("#", ";")):
            continue
        if stripped.endswith("\\"):
            pending += stripped[:-1] + " "
            continue
        whole, pending = (pending + stripped).strip(), ""
        if whole.startswith("[") and whole.endswith("]"):
            section = whole[1:-1]
        elif "=" in whole:
            key, _, value = whole.partition("=")
            settings.append((section, key.strip(), value.strip()))
    return settings


def seconds(text: str) -> float:
    """A span of systemd: `90`, `1min 30s`, `500ms`; `infinity` is -1."""
    if text.strip().lower() == "infinity":
        return _UNSET_S
    total, place = 0.0, 0
    for match in _SPAN.finditer(text.strip()):
        if match.start() != place:
            break
        unit = match[2] or "s"
        known = unit if unit in _UNITS else unit[:2] if unit[:2] in ("us", "ms") else unit[0]
        total += float(match[1]) * _UNITS[known]
        place = match.end()
    if place != len(text.strip()) or not place:
        raise UnitProblem(f"{text!r} is not a time span")
    return total


def split(text: str) -> list[str]:
    """Words as systemd splits them: quotes of both kinds, C escapes."""
    words: list[str] = []
    word: list[str] | None = None
    quote, place = "", 0
    while place < len(text):
        char = text[place]
        place += 1
        if char == "\\" and place < len(text):
            piece, place = _escape(text, place)
            word = [*(word or []), piece]
        elif quote:
            if char == quote:
                quote = ""
            else:
                assert word is not None
                word.append(char)
        elif char in "'\"":
            quote = char
            word = word if word is not None else []
        elif char.isspace():
            if word is not None:
                words.append("".join(word))
            word = None
        else:
            word = word if word is not None else []
            word.append(char)
    if quote:
        raise UnitProblem(f"a quotation in {text!r} has no end")
    if word is not None:
        words.append("".join(word))
    return words


_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}


def _escape(text: str, place: int) -> tuple[str, int]:
    char = text[place]
    if char == "x" and re.fullmatch(r"[0-9a-fA-F]{2}", text[place + 1 : place + 3]):
        return chr(int(text[place + 1 : place + 3], 16)), place + 3
    return _ESCAPES.get(char, char), place + 1


def _specified(text: str, name: str) -> str:
    """Specifiers: `%n`, `%N`, `%p`, `%i`, `%t`, `%S`, `%L`, `%H`, `%%`."""
    prefix, at, instance = name.partition("@")
    values = {
        "%": "%",
        "n": f"{name}.service",
        "N": name,
        "p": prefix,
        "i": instance if at else "",
        "I": instance if at else "",
        "t": "/run",
        "S": "/var/lib",
        "C": "/var/cache",
        "L": "/var/log",
        "E": "/etc",
        "T": "/tmp",
        "V": "/var/tmp",
        "H": os.uname().nodename,
    }
    return re.sub(r"%(.)", lambda match: values.get(match[1], match[0]), text)


def command(text: str, unit: Unit, environ: Mapping[str, str]) -> Command:
    """A command line with its variables replaced; `$MAINPID` stays, because only its keeper knows it."""
    rest = text.lstrip()
    prefixes = ""
    while rest and rest[0] in _PREFIXES:
        prefixes, rest = prefixes + rest[0], rest[1:]
    words = [_specified(word, unit.name) for word in split(rest)]
    if ":" not in prefixes:
        words = _expanded(words, environ)
    if "@" in prefixes and len(words) > 1:
        del words[1]
    if not words:
        raise UnitProblem(f"{unit.name}.service: {text!r} is not a command")
    return Command(tuple(words), "-" in prefixes)


def _expanded(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """`$NAME` as a word of its own becomes several words or none, `${NAME}` a part of one; `$$` is a dollar."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match[1] or match[2]
        return match[0] if name == "MAINPID" else environ.get(name, "")

    expanded: list[str] = []
    for word in words:
        alone = re.fullmatch(r"\$([A-Za-z_][A-Za-z0-9_]*)", word)
        if alone and alone[1] != "MAINPID":
            expanded.extend(environ.get(alone[1], "").split())
        else:
            expanded.append(re.sub(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)", value, word))
    return expanded


def environment_of(text: str) -> dict[str, str]:
    """The variables of an environment file: `NAME=value`, quotes, a backslash at the end of a line goes on."""
    variables = {}
    joined = re.sub(r"\\\n", "", text)
    for line in joined.split("\n"):
        name, sign, value = line.strip().partition("=")
        if sign and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()) and not line.lstrip().startswith(("#", ";")):
            variables[name.strip()] = _unquoted(value.strip())
    return variables


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r"\\([\"\\`$])", r"\1", text[1:-1])
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1]
    return re.sub(r"\\(.)", r"\1", text)


def environment(unit: Unit, read: Callable[[str], str | None]) -> dict[str, str]:
    """What the service's environment adds; `read` gives the text of a file or None. Raises `UnitProblem`."""
    variables = {}
    for text in unit.environment:
        for word in split(text):
            name, sign, value = _specified(word, unit.name).partition("=")
            if sign:
                variables[name] = value
    for text in unit.environment_files:
        path = _specified(text.removeprefix("-"), unit.name)
        content = read(path)
        if content is not None:
            variables.update(environment_of(content))
        elif not text.startswith("-"):
            raise UnitProblem(f"{unit.name}.service: the environment file {path} does not exist")
    return variables


def transient(root: Root) -> str:
    """The folder for what is gone with the next start of the machine. That of systemd is made by systemd alone: all
    programs, the agent too, take it for the sign that systemd runs the machine."""
    return _SYSTEMDS if os.path.isdir(root.place(_SYSTEMDS)) else _OWN


def load(root: Root, name: str) -> Unit | None:
    """The unit of a service with its drop-ins, read below a root; None when there is none. Raises `UnitProblem`."""
    prefix, at, _ = name.partition("@")
    names = [f"{name}.service", *([f"{prefix}@.service"] if at else [])]
    try:
        for candidate in names:
            for folder in FOLDERS:
                path = f"{folder}/{candidate}"
                text = _text(root, path)
                if text is not None:
                    dropins = _dropins(root, names)
                    texts = [text, *(_text(root, dropin) or "" for dropin in dropins)]
                    return parse(name, texts, [path, *dropins])
    except FileProblem as err:
        raise UnitProblem(str(err)) from err
    return None


def _text(root: Root, path: str) -> str | None:
    present = root.read(path, follow=True)
    return present.content.decode(errors="replace") if present.kind == "file" else None


def _dropins(root: Root, names: Sequence[str]) -> list[str]:
    """Drop-ins by file name; one of an earlier folder replaces one of the same name in a later one."""
    dropins: dict[str, str] = {}
    for folder in reversed(FOLDERS):
        for name in reversed(names):
            place = root.place(f"{folder}/{name}.d")
            try:
                entries = os.listdir(place)
            except OSError:
                continue
            dropins.update((entry, f"{folder}/{name}.d/{entry}") for entry in fnmatch.filter(entries, "*.conf"))
    return [path for _, path in sorted(dropins.items())]
