"""Templates made into a kernelspec and into a CMJupyterKernel.

In: a template and its values; for the resource also who starts which kernel, as the gateway knows it. Out: the files of
a kernelspec, the resource. Rendered text must be JSON or YAML of the right shape, and the resource one that the
operator makes a pod of; otherwise everything that is wrong is told before a user meets it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from bedplate.core import errors, extras, yamls
from bedplate.operators.jupyter import names, objects
from bedplate.operators.jupyter.kernel import Kernel
from bedplate.operators.jupyter.kernelspecs.template import Template

__all__ = ["SAMPLE", "Runtime", "kernel_json", "kernelspec", "resource", "resource_of"]


class Runtime(msgspec.Struct, frozen=True):
    """What is only known when a kernel starts."""

    kernel_id: str
    username: str
    uid: int
    gid: int
    homedir: str
    usershell: str = "/bin/bash"
    response_address: str = ""
    public_key: str = ""


SAMPLE = Runtime("00000000-0000-0000-0000-000000000000", "user", 1000, 1000, "/home/user", response_address="host:8877")


def _rendered(text: str, variables: Mapping[str, Any], what: str) -> str:
    extras.require("bedplate jupyter kernel", "head")
    import jinja2
    import jinja2.sandbox

    environment = jinja2.sandbox.SandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    # Jinja's own filter writes <, > and ' as escapes for HTML, which would be seen in names and images.
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    try:
        return environment.from_string(text).render(**variables)
    except (jinja2.TemplateError, TypeError, ValueError) as err:
        raise errors.Invalid(f"{what} cannot be rendered: {err}") from err


def kernel_json(template: Template, values: Mapping[str, Any]) -> dict[str, Any]:
    """The kernelspec's `kernel.json`; the gateway finds the values in it when a kernel is started."""
    what = f"template {template.name}: kernel.json.j2"
    try:
        document = json.loads(_rendered(template.kernel_json, {**values, "parameters": dict(values)}, what))
    except ValueError as err:
        raise errors.Invalid(f"{what} does not give JSON: {err}") from err
    if not isinstance(document, dict) or not isinstance(document.get("argv"), list) or not document.get("language"):
        raise errors.Invalid(f"{what} must give an object with argv, language and display_name")
    return document


def resource(template: Template, values: Mapping[str, Any], runtime: Runtime) -> dict[str, Any]:
    """The CMJupyterKernel that starts such a kernel."""
    return resource_of(template.resource, kernel_json(template, values)["argv"], values, runtime)


def resource_of(text: str, argv: list[str], values: Mapping[str, Any], runtime: Runtime) -> dict[str, Any]:
    """The resource that a text of `templates/cmjk.yaml.j2` gives."""
    what = "templates/cmjk.yaml.j2"
    rendered = _rendered(text, {**values, **msgspec.structs.asdict(runtime), "argv": argv}, what)
    try:
        document = yamls.load(rendered, strict=True)
        kernel = msgspec.convert(document, Kernel)
    except (yaml.YAMLError, msgspec.ValidationError) as err:
        raise errors.Invalid(f"{what} does not give a CMJupyterKernel: {err}") from err
    if (document.get("apiVersion"), document.get("kind")) != (f"{names.GROUP}/{names.VERSION}", names.KIND):
        raise errors.Invalid(f"{what} must give a CMJupyterKernel of {names.GROUP}/{names.VERSION}")
    given = document.get("spec") or {}
    missing = [f"spec.{name}: must be set" for name in ("kernel_id", "uid", "gid", "pod") if not given.get(name)]
    problems = [*missing, *objects.problems(kernel)]
    if problems:
        raise errors.Invalid(f"{what} gives a kernel that the operator refuses", problems=problems)
    return dict(document)


def kernelspec(template: Template, values: Mapping[str, Any]) -> dict[str, str]:
    """The files of a kernelspec, by their path in its folder; checked with a kernel of a sample user."""
    resource(template, values, SAMPLE)
    return {
        "kernel.json": json.dumps(kernel_json(template, values), indent=1, ensure_ascii=False) + "\n",
        "templates/cmjk.yaml.j2": template.resource,
    }
