"""A kernel template: its form (`meta.yaml`), and what somebody filled in.

In: a folder with `meta.yaml`, `kernel.json.j2` and `templates/cmjk.yaml.j2`; values by name. Out: the values of all
parameters, defaults included, or everything that is wrong. Getters: `static` has `default` and `values`; `shell` runs
its `exec` lines, whose output has one value a line, the first of which is the default.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bedplate.core import errors, yamls

__all__ = ["BUILT_IN", "Meta", "Parameter", "Template", "built_in", "choices", "load", "run_shell", "values"]

SHELL_S = 30.0
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
BUILT_IN = (
    "jupyter-eg-kernel-k8s-cmjkop-py",
    "jupyter-eg-kernel-k8s-cmjkop-py-spark",
    "jupyter-eg-kernel-k8s-cmjkop-r",
)
FILES = ("meta.yaml", "kernel.json.j2", "templates/cmjk.yaml.j2")
_TYPES: Mapping[str, type] = {"str": str, "int": int, "bool": bool, "list": list}
Shell = Callable[[Sequence[str]], list[str]]


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a parameter's values come from, and what it is called."""

    getter: str
    display_name: str = ""
    default: Any = None
    values: list[Any] | None = None
    exec: list[str] | None = None


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a text, or how many members a list, may be."""

    max_len: int | None = None
    min_len: int | None = None


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One field of the form."""

    type: str
    definition: Definition
    limits: Limits = Limits()


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`meta.yaml`."""

    display_name: str
    parameters: dict[str, Parameter]
    features: str = ""


class Template(msgspec.Struct, frozen=True):
    """One template, read."""

    name: str
    meta: Meta
    kernel_json: str
    resource: str


def built_in(name: str) -> Template:
    """A template of this package."""
    if name not in BUILT_IN:
        raise errors.NotFound(f"template {name!r} does not exist", hint=f"one of {', '.join(BUILT_IN)}, or a folder")
    root = resources.files("bedplate.operators.jupyter.kernelspecs").joinpath("kerneltemplates", name)
    return _template(name, [root.joinpath(*file.split("/")).read_text(encoding="utf-8") for file in FILES])


def load(folder: Path) -> Template:
    """The template in a folder."""
    texts = []
    for file in FILES:
        try:
            texts.append((folder / file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as err:
            raise errors.Invalid(f"template {folder}: {file} cannot be read: {err}") from err
    return _template(folder.resolve().name, texts)


def _template(name: str, texts: Sequence[str]) -> Template:
    try:
        meta = msgspec.convert(yamls.load(texts[0], strict=True), Meta)
    except (yaml.YAMLError, msgspec.ValidationError) as err:
        raise errors.Invalid(f"template {name}: meta.yaml: {err}") from err
    problems = [problem for key, parameter in meta.parameters.items() for problem in _meta_problems(key, parameter)]
    if problems:
        raise errors.Invalid(f"template {name}: meta.yaml", problems=problems)
    return Template(name, meta, texts[1], texts[2])


def _meta_problems(name: str, parameter: Parameter) -> Iterator[str]:
    definition = parameter.definition
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        yield f"parameters.{name}: the name must consist of a-z, 0-9 and '_'"
    if parameter.type not in _TYPES:
        yield f"parameters.{name}.type: {parameter.type!r} is not one of {', '.join(_TYPES)}"
    if definition.getter not in ("static", "shell"):
        yield f"parameters.{name}.definition.getter: {definition.getter!r} is not one of static, shell"
    if definition.getter == "shell" and not definition.exec:
        yield f"parameters.{name}.definition.exec: must be set, because the getter is shell"
    if definition.getter == "static" and definition.exec:
        yield f"parameters.{name}.definition.exec: must not be set, because the getter is static"


def run_shell(lines: Sequence[str]) -> list[str]:
    """What these lines print, line by line."""
    text = "\n".join(lines)
    try:
        done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, timeout=SHELL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise errors.Unavailable(f"the getter {text!r} failed: {err}") from err
    if done.returncode:
        told = done.stderr.strip().splitlines() or ["no output"]
        raise errors.Unavailable(f"the getter {text!r} failed with exit code {done.returncode}: {told[-1]}")
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def choices(parameter: Parameter, shell: Shell) -> tuple[Any, list[Any]]:
    """A parameter's default, and what a form offers for it."""
    definition = parameter.definition
    if definition.getter == "static":
        return definition.default, list(definition.values or ())
    lines = shell(definition.exec or ())
    if definition.default is not None:
        return definition.default, list(lines)
    return (_converted(parameter, lines[0]) if lines else None), list(lines)


def values(template: Template, given: Mapping[str, str], shell: Shell = run_shell) -> dict[str, Any]:
    """All parameters with their values; raises `Invalid` with everything that is wrong."""
    problems = [f"{name}: not a parameter of this template" for name in given if name not in template.meta.parameters]
    chosen: dict[str, Any] = {}
    for name, parameter in template.meta.parameters.items():
        try:
            # A getter that need not be asked is not run.
            chosen[name] = _converted(parameter, given[name]) if name in given else choices(parameter, shell)[0]
        except ValueError as err:
            problems.append(f"{name}: {err}")
            continue
        problems += [f"{name}: {text}" for text in _value_problems(parameter, chosen[name])]
    if problems:
        known_names = ", ".join(template.meta.parameters)
        raise errors.Invalid(f"template {template.name}", problems=problems, hint=f"parameters: {known_names}")
    return chosen


def _converted(parameter: Parameter, text: str) -> Any:
    match parameter.type:
        case "int":
            if not re.fullmatch(r"-?[0-9]{1,18}", text):
                raise ValueError(f"{text!r} must be an integer")
            return int(text)
        case "bool":
            if text not in ("true", "false"):
                raise ValueError(f"{text!r} must be true or false")
            return text == "true"
        case "list":
            return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _value_problems(parameter: Parameter, value: Any) -> Iterator[str]:
    if value is None:
        yield "must be set"
        return
    if isinstance(value, bool) != (parameter.type == "bool") or not isinstance(value, _TYPES[parameter.type]):
        yield f"{value!r} must be of type {parameter.type}"
        return
    if isinstance(value, str) and not value.isprintable():
        yield "must consist of printable characters"
    # What a shell getter prints is offered; it cannot know everything, so it forbids nothing.
    known = parameter.definition.values if parameter.definition.getter == "static" else None
    for member in value if isinstance(value, list) else [value]:
        if known is not None and member not in known:
            yield f"{member!r} is not one of {', '.join(map(str, known))}"
    if isinstance(value, str | list):
        limits, noun = parameter.limits, "characters" if isinstance(value, str) else "members"
        if limits.max_len is not None and len(value) > limits.max_len:
            yield f"must have at most {limits.max_len} {noun}, has {len(value)}"
        if limits.min_len is not None and len(value) < limits.min_len:
            yield f"must have at least {limits.min_len} {noun}, has {len(value)}"
