"""One typed tree of settings per program: defaults < file < environment < flags.

In: a frozen msgspec Struct type that declares names, types and defaults, and up to three layers of values. Out: an
instance, plus where each value came from. Every problem of every layer is found before anything is refused, so that one
run shows them all. Reading the file is the only input; inner code receives values and never reads the environment.

A field typed `Duration` takes Go's syntax (`1m30s`); nested Structs make nested keys in the file, `BEDPLATE_A_B` in
the environment and `a.b` in flags.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import yaml

from bedplate.core import duration, errors, yamls

__all__ = ["Duration", "Loaded", "load"]

Duration = Annotated[float, "duration"]
S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings and their origin: `sources["a.b"]` is `default`, `file PATH`, `environment NAME` or `flag --a-b`."""

    value: S
    sources: Mapping[str, str]


@dataclass(slots=True)
class _Gather:
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)


def load(
    schema: type[S],
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    prefix: str = "BEDPLATE",
    flags: Mapping[str, object] | None = None,
) -> Loaded[S]:
    """Merge the layers into one instance of `schema`; raises `Invalid` with every problem found."""
    leaves = dict(_leaves(schema))
    gather = _Gather()
    if file is not None:
        _take_file(file, leaves, gather)
    for path in leaves:
        name = f"{prefix}_{path.replace('.', '_')}".upper()
        if environ is not None and name in environ:
            _take(path, environ[name], leaves[path], f"environment {name}", gather)
    for path, value in (flags or {}).items():
        if value is None:
            continue
        source = "flag --" + path.replace(".", "-").replace("_", "-")
        if path not in leaves:
            gather.problems.append(f"{source}: no such setting{_suggest(path, leaves)}")
        else:
            _take(path, value, leaves[path], source, gather)
    built = _build(schema, "", gather)
    if built is not None and not gather.problems:
        return Loaded(built, {path: gather.sources.get(path, "default") for path in leaves})
    raise errors.Invalid("the settings are not usable", problems=gather.problems, hint="correct the values named above")


def _leaves(schema: type[msgspec.Struct], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    hints = get_type_hints(schema, include_extras=True)
    for name in schema.__struct_fields__:
        kind = hints[name]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found += _leaves(kind, f"{prefix}{name}.")
        else:
            found.append((prefix + name, kind))
    return found


def _take_file(file: Path, leaves: Mapping[str, Any], gather: _Gather) -> None:
    source = f"file {file}"
    try:
        content = yamls.load(file.read_text(encoding="utf-8"), strict=True)
    except OSError as err:
        gather.problems.append(f"{source}: cannot be read: {err.strerror}")
        return
    except (yaml.YAMLError, UnicodeDecodeError) as err:
        gather.problems.append(f"{source}: is not YAML: {' '.join(str(err).split())}")
        return
    if content is None:
        return
    if not isinstance(content, dict):
        gather.problems.append(f"{source}: holds a {type(content).__name__} where settings by name are expected")
        return
    _take_tree(content, "", source, leaves, gather)


def _take_tree(tree: Mapping[Any, Any], prefix: str, source: str, leaves: Mapping[str, Any], gather: _Gather) -> None:
    for key, value in tree.items():
        path = f"{prefix}{key}".replace("-", "_")
        if path in leaves:
            _take(path, value, leaves[path], source, gather)
        elif isinstance(value, dict) and any(leaf.startswith(path + ".") for leaf in leaves):
            _take_tree(value, path + ".", source, leaves, gather)
        else:
            gather.problems.append(f"{source}: {path}: no such setting{_suggest(path, leaves)}")


def _suggest(path: str, leaves: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(path, list(leaves), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _take(path: str, value: object, kind: Any, source: str, gather: _Gather) -> None:
    try:
        gather.values[path] = _convert(value, kind)
        gather.sources[path] = source
    except (msgspec.ValidationError, ValueError) as err:
        gather.problems.append(f"{source}: {path}: {err}")
        gather.refused.add(path)


def _convert(value: object, kind: Any) -> object:
    if get_origin(kind) is Annotated and "duration" in get_args(kind)[1:]:
        return duration.parse_duration(value) if isinstance(value, str) else msgspec.convert(value, float)
    if isinstance(value, str) and get_origin(kind) in (list, tuple):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return msgspec.convert(value, kind, strict=False)


def _build(schema: type[S], prefix: str, gather: _Gather, default: Any = None) -> S | None:
    """An instance of `schema`; None, with the problems noted, when a value is missing or was refused.

    `default` is the instance that the enclosing Struct would use: what is set nowhere comes from there.
    """
    hints = get_type_hints(schema, include_extras=True)
    arguments: dict[str, Any] = {}
    is_whole = True
    for item in msgspec.structs.fields(schema):
        path, kind = prefix + item.name, hints[item.name]
        usual = _default(item) if default is None else getattr(default, item.name)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            arguments[item.name] = _build(kind, path + ".", gather, None if usual is msgspec.NODEFAULT else usual)
            is_whole = is_whole and arguments[item.name] is not None
        elif path in gather.refused:
            is_whole = False
        elif path in gather.values or usual is not msgspec.NODEFAULT:
            arguments[item.name] = gather.values.get(path, usual)
        else:
            gather.problems.append(f"{path}: is required and set nowhere")
            is_whole = False
    if not is_whole:
        return None
    try:
        return schema(**arguments)
    except (TypeError, ValueError) as err:
        # A Struct's own __post_init__ judges values against each other.
        gather.problems.append(f"{prefix.rstrip('.') or 'settings'}: {err}")
        return None


def _default(item: msgspec.structs.FieldInfo) -> Any:
    return item.default_factory() if callable(item.default_factory) else item.default
