"""Flags in the static pods of a control plane node, kept there line by line: the rest of a manifest stays as it is.

In: a manifest's text, a container, a flag. Out: the text with the flag in that container's command, or without it, or
None where there is no such container. It reads the block style that kubeadm writes. `Manifests` does that to the files
in `/etc/kubernetes/manifests`; the kubelet sees a whole file each time. A manifest may be missing for now:
kubeadm patches it when it makes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from bedplate.agent.files import FileProblem, Root, Written
from bedplate.agent.state import State
from bedplate.api.desired import Desired, Flag
from bedplate.api.steps import Step

__all__ = ["FOLDER", "Manifests", "with_flag"]

FOLDER = "/etc/kubernetes/manifests"
_PLAIN = re.compile(r"--[A-Za-z0-9][A-Za-z0-9_.,:/=@+-]*")


class _Command(NamedTuple):
    """The lines of a container's command, without its first word, and their indentation."""

    start: int
    end: int
    indent: str


def with_flag(text: str, container: str, key: str, argument: str | None) -> tuple[str, str] | None:
    """The manifest with the argument in place of what sets that flag, without it for None; and what was there."""
    lines = text.split("\n")
    command = _find(lines, container)
    if command is None:
        return None
    before = ""
    place = command.end
    for number in range(command.start, command.end):
        word = _word(lines[number])
        if word == f"--{key}" or word.startswith(f"--{key}="):
            before, place = word, number
            break
    new = [] if argument is None else [f"{command.indent}- {_quoted(argument)}"]
    lines[place : place + (1 if before else 0)] = new
    return "\n".join(lines), before


def _find(lines: Sequence[str], container: str) -> _Command | None:
    """Where the command of a container is."""
    for number, line in enumerate(lines):
        match = re.fullmatch(r"(\s*)containers:\s*", line)
        if match:
            return _in_list(lines, number + 1, container)
    return None


def _in_list(lines: Sequence[str], first: int, container: str) -> _Command | None:
    opening = re.match(r"(\s*)- ", lines[first]) if first < len(lines) else None
    if opening is None:
        return None
    dash = opening[1]
    inner = dash + "  "
    starts = []
    end = first
    for end in range(first, len(lines)):
        line = lines[end]
        if line.startswith(dash + "- "):
            starts.append(end)
        elif line.strip() and not line.startswith(inner):
            break
    else:
        end = len(lines)
    for start, stop in zip(starts, [*starts[1:], end], strict=True):
        body = [inner + lines[start][len(dash) + 2 :], *lines[start + 1 : stop]]
        if any(re.fullmatch(rf"{inner}name:\s*[\"']?{re.escape(container)}[\"']?\s*", line) for line in body):
            return _command(body, start, inner)
    return None


def _command(body: Sequence[str], start: int, inner: str) -> _Command | None:
    for offset, line in enumerate(body):
        if re.fullmatch(rf"{inner}command:\s*", line):
            items = []
            for number in range(offset + 1, len(body)):
                match = re.match(r"(\s*)- ", body[number])
                if match is None or not match[1].startswith(inner):
                    break
                items.append((number, match[1]))
            if items:
                return _Command(start + items[0][0] + 1, start + items[-1][0] + 1, items[0][1])
    return None


def _word(line: str) -> str:
    text = line.strip().removeprefix("- ").strip()
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    return text[1:-1].replace("''", "'") if text.startswith("'") and text.endswith("'") else text


def _quoted(argument: str) -> str:
    return argument if _PLAIN.fullmatch(argument) and not argument.endswith(":") else json.dumps(argument)


class Manifests:
    """The manifests below a root; `state` keeps the arguments that were there before."""

    def __init__(self, root: Root, state: State) -> None:
        self._root = root
        self._state = state

    def apply(self, step: Step, before: Desired | None, after: Desired) -> None:
        """Carry out a step of the kind `flag`. Raises `FileProblem`."""
        flags = {flag.name: flag for flag in (*(before.flags if before is not None else ()), *after.flags)}
        flag = flags[step.name]
        path = f"{FOLDER}/{flag.manifest}"
        present = self._root.read(path)
        originals = self._state.flags()
        if present.kind != "file":
            return
        text = present.content.decode(errors="surrogateescape")
        if step.verb == "set":
            edited = with_flag(text, flag.container, flag.key, flag.argument)
        else:
            edited = with_flag(text, flag.container, flag.key, originals.get(flag.name) or None)
        if edited is None:
            raise FileProblem(
                f"{path} has no container {flag.container} with a command", hint="name a container of that manifest"
            )
        new, was = edited
        if step.verb == "set" and flag.name not in originals:
            self._state.save_flags({**originals, flag.name: was if was != flag.argument else ""})
        if new != text:
            written = Written(present.mode, str(present.uid), str(present.gid))
            self._root.write(path, new.encode(errors="surrogateescape"), written)
        if step.verb == "clear" and flag.name in originals:
            self._state.save_flags({name: argument for name, argument in originals.items() if name != flag.name})

    def is_set(self, flag: Flag) -> bool:
        """Whether a flag is in its manifest; one that is not there yet cannot lack it."""
        present = self._root.read(f"{FOLDER}/{flag.manifest}")
        if present.kind != "file":
            return True
        text = present.content.decode(errors="surrogateescape")
        edited = with_flag(text, flag.container, flag.key, flag.argument)
        return edited is None or edited[0] == text
