"""Declarations: an entity is a class whose attributes are its rows, in the order `show` prints them.

In: the classes of `head/entities`. Out: what every front end asks of a declaration: rows by the shell's name, the value
of a row or its default, list columns, submodes with the types they hold; and of all of them together (`Schema`): which
declaration stands at which path. Classes are never instantiated; objects are `objects.Obj`, which name their class by
`type`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from bedplate.api.headapi import NAME
from bedplate.core import errors
from bedplate.head.objects import Obj, Value
from bedplate.head.schema.kinds import Bool, Integer, Kind, Text

__all__ = [
    "Entity",
    "Field",
    "Group",
    "Internal",
    "Key",
    "Look",
    "Path",
    "Row",
    "Schema",
    "Submode",
    "TypeName",
    "shell_name",
    "typed",
]

_KEY = Text(NAME, "a name (no spaces, commas, quotes, brackets, slashes or control characters, no leading dash)")


Path = tuple[str, ...]
"""`(mode, key)`, then `(submode, key)` as often as it goes down, by attribute names; a field's attribute at the end."""

Look = Callable[[str, str], Obj | None]
"""The object of a mode and key, if there is one."""


def shell_name(label: str) -> str:
    """The parameter's name in the shell: its label in lower case without blanks."""
    return re.sub(r"\s+", "", label).lower()


def typed(way: str) -> str:
    """The way to a field in the words that people type: `roles[kubelet]->kubernetescluster`."""
    return _STEP.sub(lambda step: {"_": "", "].": "]->"}.get(step[0], step[0]), way)


_STEP = re.compile(r"\[[^\]]*(?=\])|\]\.|_")


class Row(ABC):
    """One row of `show`. `attribute` is the name in storage and in REST, `shell` the one in the shell."""

    attribute = ""

    def __init__(self, label: str, *, doc: str) -> None:
        self.label = label
        self.doc = doc
        self.shell = shell_name(label)

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name

    @abstractmethod
    def show(self, obj: Obj) -> str:
        """The cell in the value column."""


class TypeName(Row):
    """The row `Type`: which declaration the object follows."""

    def show(self, obj: Obj) -> str:
        return obj.type


class Internal(Row):
    """A row that the manager uses for itself; there is nothing to set."""

    def show(self, obj: Obj) -> str:
        return "<0 internally used>"


class Field(Row):
    """A row that holds a value.

    `inherits` names the reference field of the same entity whose target gives the value when none is set here.
    `unique` refuses a value that another object of the mode has. `notice` is told to whoever sets it.
    """

    def __init__(
        self,
        label: str,
        kind: Kind,
        default: Value | None = None,
        *,
        doc: str,
        inherits: str = "",
        unique: bool = False,
        readonly: bool = False,
        notice: str = "",
    ) -> None:
        super().__init__(label, doc=doc)
        self.kind = kind
        self.target_mode = kind.target_mode
        self.default = _nothing(kind) if default is None else default
        self.inherits = inherits
        self.unique = unique
        self.readonly = readonly
        self.notice = notice

    def value(self, obj: Obj) -> Value | None:
        """The object's own value or the default; what is inherited is known by `resolve` alone."""
        return obj.values.get(self.attribute, self.default)

    def targets(self, value: Value) -> tuple[str, ...]:
        """The keys of the objects that a value names, where it is a reference."""
        if not self.target_mode or not value:
            return ()
        return value if isinstance(value, tuple) else (str(value),)

    def show(self, obj: Obj) -> str:
        value = self.value(obj)
        return "" if value is None else self.kind.show(value)

    def parse(self, text: str) -> Value:
        """The value in what somebody typed; `Invalid` names the parameter."""
        try:
            return self.kind.parse(text)
        except ValueError as wrong:
            raise errors.Invalid(f"{self.shell}: {wrong}", hint=self.doc) from None

    def normal(self, value: Value) -> Value | None:
        """As it is stored: None for the default, which is not kept."""
        return None if value == self.default else value


def _nothing(kind: Kind) -> Value | None:
    if kind.multiple:
        return ()
    return False if isinstance(kind, Bool) else None if isinstance(kind, Integer) else ""


class Key(Field):
    """The row that names the object; it is given when the object is made and does not change."""

    def __init__(self, label: str = "Name", kind: Kind = _KEY, *, doc: str = "the object's name") -> None:
        super().__init__(label, kind, doc=doc, readonly=True)

    def value(self, obj: Obj) -> Value | None:
        return obj.key


class Submode(Row):
    """A list of objects below another one, or below the top (then `shell` is the mode's name).

    `of` are the types it holds. Where a type has `names`, the object's name decides the type (roles); where there are
    several otherwise, `add` takes the type's word first. `indexed` lists have numbers instead of names. `names_shown`
    makes `show` print the names instead of their count. `usual` is the type that `add` makes when none is said.
    """

    def __init__(
        self,
        label: str,
        *of: type[Entity],
        doc: str,
        shell: str = "",
        indexed: bool = False,
        names_shown: bool = False,
        usual: type[Entity] | None = None,
    ) -> None:
        super().__init__(label, doc=doc)
        self.of = of
        self.usual = usual
        self.shell = shell or self.shell
        self.indexed = indexed
        self.names_shown = names_shown

    @property
    def typed(self) -> bool:
        """Whether `add` needs the type's word."""
        return len(self.of) > 1 and not any(entity.names for entity in self.of)

    def entity(self, type_name: str) -> type[Entity]:
        """The declaration of an object found here."""
        for entity in self.of:
            if entity.type_name() == type_name:
                return entity
        raise errors.Invalid(f"{self.label} cannot contain {type_name}", hint=f"it contains {self._held()}")

    def naming(self, name: str, word: str = "") -> tuple[type[Entity], str]:
        """The type and the key of a new object called `name`. Raises `Invalid`."""
        if self.typed:
            if not word and self.usual is not None and name.lower() not in self.words():
                return self.usual, self._checked(self.usual, name)
            for entity in self.of:
                if entity.word == word.lower():
                    return entity, self._checked(entity, name)
            raise errors.Invalid(f"{self.shell} has no type {word!r}", hint=self._meant(word))
        if len(self.of) == 1:
            return self.of[0], self._checked(self.of[0], name)
        for entity in self.of:
            canonical = entity.canonical(name)
            if canonical is not None:
                return entity, self._checked(entity, canonical)
        raise errors.Invalid(f"there is no {self.of[0].noun} {name!r}", hint=self._meant(name))

    def words(self) -> list[str]:
        """What completion offers after `add`: types, or the names that are known."""
        if self.typed:
            return sorted(entity.word for entity in self.of)
        return sorted(name for entity in self.of for name in entity.names if "*" not in name)

    def _checked(self, entity: type[Entity], name: str) -> str:
        if not name:
            raise errors.Invalid(f"a new {entity.noun} needs a name", hint="write it after add")
        entity.check_name(name)
        return name

    def _meant(self, word: str) -> str:
        import difflib  # only ever needed after a slip

        known = {known.lower(): known for known in self.words()}
        close = difflib.get_close_matches(word.lower(), list(known), n=1)
        return f"did you mean {known[close[0]]}? there are {self._held()}" if close else f"there are {self._held()}"

    def _held(self) -> str:
        return ", ".join(self.words()) or ", ".join(entity.type_name() for entity in self.of)

    def show(self, obj: Obj) -> str:
        children = obj.below(self.attribute)
        if self.names_shown:
            return ",".join(sorted(children, key=lambda key: (key.lower(), key)))
        return f"<{len(children)} in submode>"


class Group(NamedTuple):
    """Rows that belong together, under a name: by their attributes. A rare one is folded away until it is used."""

    label: str
    names: tuple[str, ...]
    is_rare: bool = False


class Entity:
    """Base of all declarations. The class's docstring is its page in the reference."""

    names: ClassVar[tuple[str, ...]] = ()
    """Names that stand for this type, `generic::*` for all of a family; empty: any name."""
    word: ClassVar[str] = ""
    """The type's word after `add`."""
    noun: ClassVar[str] = "object"
    columns: ClassVar[tuple[str, ...]] = ()
    """Attributes in `list`; `#` is the index. Empty: the key alone."""
    judged_with_targets: ClassVar[bool] = False
    """Whether `problems` looks at what the object refers to, so that a change there asks again."""
    positional: ClassVar[tuple[str, ...]] = ()
    """Attributes that `add` takes in this order, in an indexed list."""
    groups: ClassVar[tuple[Group, ...]] = ()
    """How forms group the rows; a row that is in none of them is under `Other`, which is rare. Empty: one group."""
    rows: ClassVar[tuple[Row, ...]] = ()
    """All rows in the order of `show`: those of the bases first; a row declared again keeps its place."""
    fields: ClassVar[tuple[Field, ...]] = ()
    """The rows that hold values, without the key."""
    linking: ClassVar[tuple[Field, ...]] = ()
    """The fields that refer to other objects, or must be unique: what an index of the tree looks at."""
    naming: ClassVar[tuple[Key, ...]] = ()
    """The row of the key; none in an indexed list."""
    submodes: ClassVar[tuple[Submode, ...]] = ()
    attributes: ClassVar[Mapping[str, Row]] = {}

    def __init_subclass__(cls) -> None:
        rows: dict[str, Row] = {}
        for base in reversed(cls.__mro__):
            rows.update((name, row) for name, row in vars(base).items() if isinstance(row, Row))
        cls.attributes, cls.rows = rows, tuple(rows.values())
        cls.fields = tuple(row for row in cls.rows if isinstance(row, Field) and not isinstance(row, Key))
        cls.linking = tuple(field for field in cls.fields if field.target_mode or field.unique)
        cls.naming = tuple(row for row in cls.rows if isinstance(row, Key))
        cls.submodes = tuple(row for row in cls.rows if isinstance(row, Submode))
        unknown = [name for group in cls.groups for name in group.names if name not in rows]
        if unknown:
            raise ValueError(f"{cls.__name__} has no row {unknown[0]!r} to put into a group")

    @classmethod
    def type_name(cls) -> str:
        return cls.__name__

    @classmethod
    def made(cls, key: str) -> Obj:
        """A new object of this type as `add` makes it."""
        return Obj(cls.type_name(), key)

    @classmethod
    def canonical(cls, name: str) -> str | None:
        """The name as it is written, when it is one of this type's; roles are matched without regard to case."""
        for known in cls.names:
            if known.lower() == name.lower():
                return known
            if known.endswith("*") and name.lower().startswith(known[:-1]) and len(name) >= len(known):
                return name.lower()
        return None

    @classmethod
    def row(cls, word: str) -> Row:
        """The row of a name as the shell writes it; `name` is the key, whatever it is called. Raises `NotFound`."""
        shells = {row.shell: row for row in cls.rows}
        row = shells.get(shell_name(word))
        if row is None and shell_name(word) == "name":
            row = next(iter(cls.naming), None)
        if row is None:
            raise errors.NotFound(f"{cls.type_name()} has no parameter {word!r}", hint=_nearest(word, shells))
        return row

    @classmethod
    def grouped(cls) -> list[tuple[Group, tuple[Row, ...]]]:
        """Every row, in exactly one group; groups in the order of the declaration, without empty ones."""
        groups = cls.groups or (Group("General", tuple(name for name in cls.attributes if name != "revision")),)
        named = {name for group in groups for name in group.names}
        other = Group("Other", tuple(name for name in cls.attributes if name not in named), is_rare=True)
        pairs = [(group, tuple(cls.attributes[name] for name in group.names)) for group in (*groups, other)]
        return [(group, rows) for group, rows in pairs if rows]

    @classmethod
    def check_name(cls, key: str) -> None:
        """Raise `Invalid` for what an object of this type may not be called."""
        for row in cls.naming:
            row.parse(key)

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        """What is wrong with the object as a whole, beyond its single values; `look` finds what it refers to."""
        return ()

    @classmethod
    def list_columns(cls) -> list[str]:
        """The headers of `list`."""
        key = next((row.label for row in cls.naming), "")
        first = f"{key} (key)" if key else "Index"
        return [first, *(cls.attributes[name].label for name in cls.columns)]


class Schema:
    """The modes, and every type found in them or below."""

    largest_bytes: ClassVar[int] = 500 << 10
    """How large a top-level object may be, as JSON, with all that is below it. A revision holds it before and after,
    beside the object itself, and etcd takes 1.5 MiB in one commit."""

    def __init__(self, modes: Iterable[Submode]) -> None:
        self.modes: Mapping[str, Submode] = {mode.shell: mode for mode in modes}
        self.types: dict[str, type[Entity]] = {}
        for mode in self.modes.values():
            self._collect(mode)
        fields = [field for entity in self.types.values() for field in entity.fields]
        self.secrets = frozenset(field.attribute for field in fields if field.kind.secret)
        self.judged_with_targets = tuple(
            name for name, mode in self.modes.items() if any(entity.judged_with_targets for entity in mode.of)
        )

    def _collect(self, submode: Submode) -> None:
        for entity in submode.of:
            known = self.types.get(entity.type_name())
            if known is entity:
                continue
            if known is not None:
                raise ValueError(f"two declarations are called {entity.type_name()}")
            self.types[entity.type_name()] = entity
            for inner in entity.submodes:
                self._collect(inner)

    def mode(self, name: str) -> Submode:
        """A mode by name. Raises `NotFound`."""
        submode = self.modes.get(name.lower())
        if submode is None:
            raise errors.NotFound(f"there is no mode {name!r}", hint=f"modes: {', '.join(self.modes)}")
        return submode

    def of(self, obj: Obj) -> type[Entity]:
        """The declaration an object follows."""
        return self.types[obj.type]

    def submode(self, obj: Obj, name: str) -> Submode:
        """The submode of an object, by the shell's name or the attribute. Raises `NotFound`."""
        for row in self.of(obj).submodes:
            if name in (row.attribute, row.shell) or row.shell == name.lower():
                return row
        raise errors.NotFound(
            f"{obj.type} {obj.key} has no submode {name!r}",
            hint="submodes: " + (", ".join(row.shell for row in self.of(obj).submodes) or "none"),
        )


def _nearest(word: str, known: Mapping[str, object]) -> str:
    import difflib  # only ever needed after a slip

    close = difflib.get_close_matches(shell_name(word), list(known), n=1)
    return f"did you mean {close[0]}?" if close else "show lists the parameters"
