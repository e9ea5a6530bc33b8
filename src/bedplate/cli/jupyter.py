"""`bedplate jupyter …`: what installs the kernel operator.

In: an image. Out: YAML on standard output.
"""

from __future__ import annotations

import click
import yaml

from bedplate.cli import display
from bedplate.operators.jupyter import options

__all__ = ["jupyter"]


@click.group()
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
