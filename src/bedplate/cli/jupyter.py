"""`bedplate jupyter …`: what installs the kernel operator, and kernelspecs from templates.

In: an image; a template and values. Out: YAML on standard output, the folder of a kernelspec.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from bedplate.cli import display
from bedplate.core import errors
from bedplate.operators.jupyter import options

if TYPE_CHECKING:
    from bedplate.operators.jupyter.kernelspecs.render import Runtime
    from bedplate.operators.jupyter.kernelspecs.template import Template

__all__ = ["jupyter"]


@click.group(
    epilog=display.examples(
        "bedplate jupyter manifests | kubectl apply --server-side -f -",
        "bedplate jupyter kernel templates",
    )
)
def jupyter() -> None:
    """Jupyter kernels in pods: manifests of the operator, kernelspecs from templates."""


@jupyter.command(
    short_help="Print what installs the operator.",
    epilog=display.examples(
        "bedplate jupyter manifests | kubectl apply --server-side -f -",
        "bedplate jupyter manifests --image my.registry/bedplate:1.0.0",
    ),
)
@click.option("--image", default=options.IMAGE, show_default=True, help="Image of the operator and of sidecars.")
@click.option(
    "--pull-policy",
    type=click.Choice(options.PULL_POLICIES),
    default="IfNotPresent",
    show_default=True,
    help="When that image is pulled.",
)
def manifests(image: str, pull_policy: str) -> None:
    """Print the definition of CMJupyterKernel, the operator's namespace, account, rights and Deployment."""
    from bedplate.operators.jupyter import manifests as made

    if not image.strip():
        raise click.UsageError("--image: must not be empty")
    click.echo(yaml.safe_dump_all(made.documents(image, pull_policy), sort_keys=False), nl=False)


@jupyter.group(epilog=display.examples("bedplate jupyter kernel create jupyter-eg-kernel-k8s-cmjkop-py"))
def kernel() -> None:
    """Kernelspecs of kernels in pods, made from templates."""


def _template(name: str) -> Template:
    """A template of ours, or, where the name has a slash or is a folder, that of the user."""
    from bedplate.operators.jupyter.kernelspecs import template

    folder = Path(name)
    return template.load(folder) if "/" in name or folder.is_dir() else template.built_in(name)


@kernel.command(
    short_help="List the templates, or the parameters of one.",
    epilog=display.examples(
        "bedplate jupyter kernel templates",
        "bedplate jupyter kernel templates jupyter-eg-kernel-k8s-cmjkop-r -o json",
    ),
)
@click.argument("template", default="")
@display.output_option
def templates(template: str, output: str) -> None:
    """List the templates that come with the operator; with TEMPLATE its parameters."""
    from bedplate.operators.jupyter.kernelspecs import template as read

    if not template:
        all_templates = {name: read.built_in(name).meta.display_name for name in read.BUILT_IN}
        display.show(output, ["template", "display name"], all_templates.items(), all_templates)
        return
    rows = []
    for name, parameter in _template(template).meta.parameters.items():
        default, offered = read.choices(parameter, read.run_shell)
        rows.append((name, parameter.type, default, parameter.definition.display_name, offered))
    columns = ["parameter", "type", "default", "display name", "choices"]
    data = [dict(zip(columns, row, strict=True)) for row in rows]
    display.show(output, columns, [(*row[:4], ",".join(map(str, row[4]))) for row in rows], data)


_set = click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="A parameter; lists: a,b,c.")


def _values(template: Template, given: tuple[str, ...]) -> dict[str, Any]:
    from bedplate.operators.jupyter.kernelspecs import template as read

    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name in pairs:
            raise click.UsageError(f"--set: {text!r} must be NAME=VALUE, each name once")
        pairs[name] = value
    return read.values(template, pairs)


@kernel.command(
    short_help="Make a kernelspec of a template.",
    epilog=display.examples(
        "bedplate jupyter kernel create jupyter-eg-kernel-k8s-cmjkop-py --set namespace=john-restricted",
        "bedplate jupyter kernel create jupyter-eg-kernel-k8s-cmjkop-r --set pvc_name=work --set gpus=1",
    ),
)
@click.argument("template")
@_set
@click.option(
    "--kernels",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("~/.local/share/jupyter/kernels"),
    show_default=True,
    help="The folder of kernelspecs.",
)
@click.option("--replace", is_flag=True, help="Replace a kernelspec of that name.")
def create(template: str, given: tuple[str, ...], kernels: Path, replace: bool) -> None:
    """Fill in TEMPLATE and write the kernelspec, named by the parameter kernel_name, into the folder of kernelspecs."""
    from bedplate.operators.jupyter.kernelspecs import folders, render

    chosen = _template(template)
    values = _values(chosen, given)
    target = folders.write(
        kernels.expanduser(), str(values.get("kernel_name", "")), render.kernelspec(chosen, values), replace
    )
    click.echo(f"kernelspec {target.name} written to {target}")


@kernel.command(
    short_help="Print the CMJupyterKernel that a template gives.",
    epilog=display.examples(
        "bedplate jupyter kernel render jupyter-eg-kernel-k8s-cmjkop-py --set namespace=john-restricted"
    ),
)
@click.argument("template")
@_set
@click.option("--user", default="", help="The user who starts it.  [default: you]")
@click.option("--kernel-id", default=None, help="Its UUID.  [default: zeros]")
def render(template: str, given: tuple[str, ...], user: str, kernel_id: str | None) -> None:
    """Print the CMJupyterKernel that starting a kernel of TEMPLATE would create."""
    from bedplate.operators.jupyter.kernelspecs import render as rendering

    chosen = _template(template)
    runtime = _runtime(user, kernel_id or rendering.SAMPLE.kernel_id)
    document = rendering.resource(chosen, _values(chosen, given), runtime)
    click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)


def _runtime(user: str, kernel_id: str) -> Runtime:
    import os
    import pwd

    from bedplate.operators.jupyter.kernelspecs.render import Runtime

    try:
        account = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    except KeyError as err:
        raise errors.NotFound(f"user {user or os.getuid()} does not exist on this machine") from err
    return Runtime(
        kernel_id, account.pw_name, account.pw_uid, account.pw_gid, account.pw_dir, account.pw_shell or "/bin/bash"
    )
