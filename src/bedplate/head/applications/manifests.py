"""The manifests of an application: variables replaced, documents read, every fault with its line.

In: YAML with `$NAME`, and the values of the variables. Out: objects in their order, each with the line on which it
begins; names that look like variables and have no value. Pure; what a server thinks of an object is not known here.

    $NAME, ${NAME}   its value, if the application's environment has that name; else unchanged, and reported
    $$               $
    any other $      unchanged
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bedplate.core import errors

__all__ = ["Manifest", "Manifests", "Text", "read", "render", "substitute"]

_VARIABLE = re.compile(r"\$(?:(\$)|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_NAME = re.compile(r"[^/%\x00-\x20\x7f]{1,253}")
_GROUP_VERSION = re.compile(r"(?:([a-z0-9]([a-z0-9.-]*[a-z0-9])?)/)?(v[a-z0-9]+)")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_MOST_PROBLEMS = 20


class Text(NamedTuple):
    """Manifests with their variables replaced; `unknown` are names without a value, in the order they occur."""

    text: str
    unknown: tuple[str, ...]


class Manifest(NamedTuple):
    """One object as it should be; `line` is where it begins."""

    group: str
    version: str
    kind: str
    namespace: str
    name: str
    line: int
    body: Mapping[str, Any]

    @property
    def claim(self) -> tuple[str, str, str, str]:
        """Which object it is: the same for two manifests of one object, whether or not they name its namespace."""
        return self.group, self.kind, self.namespace or "default", self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Manifests(NamedTuple):
    """What an application's text and environment amount to."""

    objects: tuple[Manifest, ...]
    unknown: tuple[str, ...]


def substitute(text: str, variables: Mapping[str, str]) -> Text:
    """Replace the variables that have a value."""
    unknown: dict[str, None] = {}

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        name = match[2] or match[3]
        if name not in variables:
            unknown[name] = None
            return match[0]
        return variables[name]

    return Text(_VARIABLE.sub(value, text), tuple(unknown))


def render(text: str, variables: Mapping[str, str]) -> Manifests:
    """The objects of a text. Raises `Invalid` with every fault."""
    return _rendered(text, tuple(sorted(variables.items())))


@functools.lru_cache(maxsize=256)
def _rendered(text: str, variables: tuple[tuple[str, str], ...]) -> Manifests:
    """Kept, because every commit of a cluster asks about all of its applications."""
    replaced = substitute(text, dict(variables))
    return Manifests(read(replaced.text), replaced.unknown)


def read(text: str) -> tuple[Manifest, ...]:
    """The objects of one or several documents, lists taken apart. Raises `Invalid` with every fault and its line."""
    import yaml

    from bedplate.core import yamls

    try:
        documents = yamls.load_all(text, strict=True)
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = err.problem or err.context or "cannot be read"
        raise errors.Invalid("the YAML is not valid", problems=[f"{where}{problem}"]) from None
    except yaml.reader.ReaderError as err:
        line = text.count("\n", 0, err.position) + 1
        raise errors.Invalid("the YAML is not valid", problems=[f"line {line}: {err.reason}"]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        raise errors.Invalid("the YAML is not valid", problems=[str(err) or type(err).__name__]) from None
    objects: list[Manifest] = []
    problems: list[str] = []
    lines: dict[tuple[str, str, str, str], int] = {}
    for line, value in documents:
        for item in _items(value):
            try:
                manifest = _manifest(item, line)
            except ValueError as err:
                problems.append(f"line {line}: {err}")
                continue
            if manifest.claim in lines:
                problems.append(f"line {line}: {manifest} is already on line {lines[manifest.claim]}")
            lines.setdefault(manifest.claim, line)
            objects.append(manifest)
    if problems:
        raise errors.Invalid("the manifests are not valid", problems=problems[:_MOST_PROBLEMS])
    return tuple(objects)


def _items(value: Any) -> Iterator[Any]:
    """The objects of a document: those of a list, or itself."""
    if isinstance(value, dict) and value.get("kind") == "List" and value.get("apiVersion") == "v1":
        items = value.get("items")
        if isinstance(items, list):
            yield from items
            return
    yield value


def _manifest(value: Any, line: int) -> Manifest:
    """Raises `ValueError` for what is not an object of Kubernetes."""
    if not isinstance(value, dict):
        raise ValueError("must be an object with apiVersion, kind and metadata")
    api_version, kind = value.get("apiVersion"), value.get("kind")
    parts = _GROUP_VERSION.fullmatch(api_version) if isinstance(api_version, str) else None
    if parts is None:
        raise ValueError("apiVersion must be VERSION or GROUP/VERSION, such as v1 or apps/v1")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise ValueError("kind must be the kind of an object, such as ConfigMap")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise ValueError(f"{kind}: metadata is missing")
    name, namespace = metadata.get("name"), metadata.get("namespace") or ""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        hint = "; generateName cannot be kept applied" if "generateName" in metadata else ""
        raise ValueError(f"{kind}: metadata.name must be the name of the object{hint}")
    if not isinstance(namespace, str) or (namespace and (not _NAME.fullmatch(namespace) or namespace in (".", ".."))):
        raise ValueError(f"{kind} {name}: metadata.namespace must be the name of a namespace")
    for field in ("labels", "annotations"):
        texts = metadata.get(field)
        if texts is not None and not (
            isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values())
        ):
            raise ValueError(f"{kind} {name}: the values of metadata.{field} must be text; put numbers in quotes")
    return Manifest(parts[1] or "", parts[3], kind, namespace, name, line, _plain(value, f"{kind} {name}"))


def _plain(value: Any, what: str) -> Any:
    """As JSON has it: keys are text, numbers are finite. Raises `ValueError`."""
    if isinstance(value, dict):
        return {_key(key, what): _plain(member, what) for key, member in value.items()}
    if isinstance(value, list):
        return [_plain(member, what) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{what}: {value} is not a number that JSON has")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"{what}: a value of the type {type(value).__name__} is not part of JSON")


def _key(key: Any, what: str) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int):
        return str(key)
    raise ValueError(f"{what}: the key {key!r} must be text")
