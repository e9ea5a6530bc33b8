"""What a command works with: the session, the place, the head behind them, and where to write.

In: names as they are typed. Out: paths, objects and declarations, with errors that say what to do next. The one thing
that is not simply in the tree is known here, too: the services of a node hold those of its roles and its category.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head import Edit, Obj, Path, Schema, Session
from bedplate.head.schema import ranges
from bedplate.head.schema.entity import Entity, Submode
from bedplate.ui.backend import Backend
from bedplate.ui.cmsh import layout, place
from bedplate.ui.cmsh.command import Arguments
from bedplate.ui.cmsh.host import Host
from bedplate.ui.cmsh.language import Usage

__all__ = ["Desk"]

MASTER = "master"
"""Stands for the active head node wherever a device is named."""


@dataclass
class Desk:
    """What a command works with. `write` takes output, `note` what is for the eyes alone; `run` runs a line."""

    backend: Backend
    session: Session
    host: Host
    write: Callable[[str], None]
    note: Callable[[str], None]
    run: Callable[[str], Awaitable[int]]
    clock: Clock
    is_interactive: bool = False
    place: Path = ()
    is_over: bool = False
    warned: tuple[Edit, ...] = ()
    """What was staged when leaving was last refused."""
    lost: tuple[Edit, ...] = ()
    """What was staged when somebody left."""
    undoes: tuple[int, tuple[object, ...]] | None = None
    """The revision whose undo is staged, with what was staged then: a commit of exactly that says so."""

    @property
    def schema(self) -> Schema:
        return self.session.schema

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

    def exists(self, path: Path) -> bool:
        try:
            if place.is_object(path):
                self.get(path)
            elif path:
                self.submode(path)
                return len(path) == 1 or self.exists(path[:-1])
        except errors.NotFound:
            return False
        return True

    def here(self) -> Path:
        """The selected object. Raises `Usage`."""
        if place.is_object(self.place):
            return self.place
        if self.place:
            raise Usage(f"no object of {self.submode(self.place).shell} is selected", hint="use NAME selects one")
        raise Usage("no object is selected", hint="enter a mode first, for example: device use master")

    def list_here(self) -> Path:
        """The list one stands in. Raises `Usage`."""
        if not self.place:
            raise Usage(
                "you are at the top, where there must be a list", hint="enter a mode first, for example: device"
            )
        return place.list_of(self.place)

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
                raise Usage(str(wrong), hint="names stand between commas, ranges look like node00[4-6]") from None
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

    def settle(self) -> None:
        """Leave what is no longer there."""
        while self.place and not self.exists(self.place):
            self.place = self.place[:-1]


def _is_services(path: Path) -> bool:
    return len(path) == 3 and path[0] == "device" and path[2] == "services"
