"""What a command works with: the session, the place, the head behind them, and where to write.

A place is () at the top, (mode,) or (mode, key, submode) in a list, (mode, key) and so on at an object, by attribute
names.

In: names as they are typed. Out: prompts, paths, objects and declarations, with errors that say what to do next. The
one thing that is not simply in the tree is known here, too: the services of a node hold those of its roles and its
category.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head import Edit, Obj, Path, Schema, Session
from bedplate.head.schema import ranges
from bedplate.head.schema.entity import Entity, Submode
from bedplate.head.schema.tables import Block
from bedplate.ui.backend import Backend
from bedplate.ui.cmsh import layout
from bedplate.ui.cmsh.command import Arguments
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.machine import Host

__all__ = ["Desk", "Listed"]

MASTER = "master"
"""Stands for the active head node wherever a device is named."""


class Listed(NamedTuple):
    """A list as it was shown: its objects, the order of their keys, the headers and the blocks of cells."""

    objects: Mapping[str, Obj]
    keys: Sequence[str]
    headers: Sequence[str]
    blocks: Sequence[Block]


@dataclass
class Desk:
    """What a command works with. `write` takes output, `note` what is for the eyes alone; `run` runs commands inside of
    another, `run_line` a whole line with pipes and files."""

    backend: Backend
    session: Session
    host: Host
    write: Callable[[str], None]
    note: Callable[[str], None]
    run: Callable[[str], Awaitable[int]]
    run_line: Callable[[str], Awaitable[int]]
    clock: Clock
    is_interactive: bool = False
    place: Path = ()
    is_over: bool = False
    warned: tuple[Edit, ...] = ()
    """What was staged when leaving was last refused."""
    lost: tuple[Edit, ...] = ()
    """What was staged when somebody left."""
    aliases: dict[str, str] = field(default_factory=dict)
    depth: int = 0
    """How many files run each other."""
    shows_events: bool = True
    """Whether notices are shown above the prompt as they come."""
    failed: int = 0
    """How many commands have failed since the last commit: what is staged may not be what was meant."""
    listed: dict[Path, Listed] = field(default_factory=dict)
    """What was last listed."""
    undoes: tuple[int, tuple[object, ...]] | None = None
    """The revision whose undo is staged, with what was staged then: a commit of exactly that says so."""

    @property
    def schema(self) -> Schema:
        return self.session.schema

    # Where one stands

    @property
    def is_at_object(self) -> bool:
        """Whether an object is selected."""
        return len(self.place) > 0 and len(self.place) % 2 == 0

    @property
    def list_place(self) -> Path:
        """The list one stands in, or the one the object stands in."""
        return self.place[:-1] if self.is_at_object else self.place

    def prompt(self) -> str:
        """`[head->mode*[object*]->submode]% `: a star where something below is staged; an index has none."""
        text = f"[{self.backend.name}"
        for at in range(0, len(self.place), 2):
            here, path = self.place[: at + 1], self.place[: at + 2]
            submode = self.session.submode(here)
            text += f"->{submode.shell}{'*' if self.session.is_changed(here) else ''}"
            if path != here:
                text += f"[{path[-1]}{'*' if not submode.indexed and self.session.is_changed(path) else ''}]"
        return text + "]% "

    def renumbered(self) -> Path:
        """The place after a commit, which counts indexed lists from 0."""
        path: Path = ()
        for at, step in enumerate(self.place):
            if at % 2 and self.session.submode(self.place[:at]).indexed:
                keys = sorted(self.session.children(self.place[:at]), key=int)
                step = str(keys.index(step)) if step in keys else step
            path = (*path, step)
        return path

    def settle(self) -> None:
        """Leave what is no longer there."""
        while self.place:
            try:
                self.get(self.place) if self.is_at_object else self.submode(self.place)
                return
            except errors.NotFound:
                self.place = self.place[:-1]

    # Writing

    def say(self, text: str) -> None:
        self.write(text + "\n")

    def table(self, table: layout.Table, args: Arguments) -> None:
        self.write(layout.render(table, verbose=args.flag("verbose"), delimiter=args.value("delimiter")))

    # Looking

    def submode(self, path: Path) -> Submode:
        return self.session.submode(path)

    def children(self, path: Path) -> Mapping[str, Obj]:
        """The objects of a list; of a node's services also those it has through roles and its category."""
        children = self.session.children(path)
        if not _is_services(path):
            return children
        from bedplate.head.resolve import resolve

        return {name: service for name, (service, _) in resolve(self.session.tree, path[1]).services.items()}

    def get(self, path: Path) -> Obj:
        """The object at a path. Raises `NotFound`."""
        if _is_services(path[:-1]):
            obj = self.children(path[:-1]).get(path[-1])
            if obj is not None:
                return obj
        return self.session.tree.get(path)

    def entity(self, path: Path) -> type[Entity]:
        return self.schema.of(self.get(path))

    def here(self) -> Path:
        """The selected object. Raises `Usage`."""
        if self.is_at_object:
            return self.place
        if self.place:
            raise Usage(f"no object of {self.submode(self.place).shell} is selected", hint="use NAME selects one")
        raise Usage("no object is selected", hint="enter a mode first, for example: device use master")

    def list_here(self) -> Path:
        """The list one stands in. Raises `Usage`."""
        if not self.place:
            raise Usage("this needs a list, but you are at the top", hint="enter a mode first, for example: device")
        return self.list_place

    def find(self, path: Path, name: str) -> Path:
        """The object of a list by its name. Raises `NotFound`."""
        if path == ("device",) and name == MASTER and name not in self.session.children(path):
            name = self.backend.name
        if _is_services(path) and name in self.children(path):
            return (*path, name)
        return self.session.find(path, name)

    def named(self, path: Path, name: str) -> Path | None:
        try:
            return self.find(path, name)
        except errors.NotFound:
            return None

    def several(self, path: Path, text: str) -> list[Path]:
        """The objects in a list of names: commas, and ranges as in `node00[4-6]`. Raises `NotFound`, `Usage`."""
        if not any(mark in text for mark in ("[", "..", ",")):
            return [self.find(path, text)]
        try:
            names: Iterable[str] = ranges.expand(text)
        except ValueError as wrong:
            if "[" in text or ".." in text:
                raise Usage(str(wrong), hint="separate names with commas; ranges look like node00[4-6]") from None
            names = text.split(",")
        return [self.find(path, name) for name in names]

    # Editing

    def editable(self, path: Path) -> Path:
        """The path of an object that is to be edited; a service that a role brought gets an entry of its own."""
        if _is_services(path[:-1]) and path[-1] not in self.session.children(path[:-1]):
            brought = self.get(path)
            values = {name: value for name, value in brought.values.items() if name != "belongs_to_role"}
            self.session.put(path, replace(brought, values=values))
        return path


def _is_services(path: Path) -> bool:
    return len(path) == 3 and path[0] == "device" and path[2] == "services"
