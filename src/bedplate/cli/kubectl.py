"""`bedplate kubectl`: kubectl from the PATH, or the one in the cache.

In: kubectl's own arguments. Out: kubectl, in place of this process. Without KUBECONFIG, the one of `bedplate up` in
this folder.
"""

from __future__ import annotations

import os
import shutil

import click

from bedplate.cli import cluster, display
from bedplate.core import errors

__all__ = ["kubectl"]

_NO_CLUSTER = (
    "note: KUBECONFIG is not set, and there is neither the .bedplate/kubeconfig of a `bedplate up` in this folder "
    "nor a ~/.kube/config"
)


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    epilog=display.examples("bedplate kubectl get nodes -o wide", "bedplate kubectl --help    of kubectl itself"),
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(arguments: tuple[str, ...]) -> None:
    """Run kubectl with ARGUMENTS."""
    program = _find()
    try:
        cluster.check_up()
    except errors.Unavailable as err:
        # Not all that kubectl can do needs a cluster.
        click.echo(f"bedplate: {errors.describe(err)}", err=True)
    if not cluster.is_named() and not any(word.startswith(("--kubeconfig", "--server", "-s")) for word in arguments):
        click.echo(f"bedplate: {_NO_CLUSTER}", err=True)
    os.execve(program, [program, *arguments], cluster.environ())


def _find() -> str:
    from bedplate.lab import binaries

    on_path = shutil.which("kubectl")
    if on_path is not None:
        return on_path
    cached = binaries.cached("kubectl")
    if cached is None:
        raise errors.NotFound("kubectl was not found", hint="bedplate binaries get kubectl")
    return str(cached)
