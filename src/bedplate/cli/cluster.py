"""Which cluster a command is about, when the command line does not say.

In: the environment, the folder in which the command runs. Out: the environment to find a kubeconfig with: KUBECONFIG
where it is set, else that of `bedplate up` in this folder, else as kubectl does. A cluster of `bedplate up` that does
not run is told as such, before it is asked in vain.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bedplate.core import errors

if TYPE_CHECKING:
    from bedplate.kube.config import ClientConfig

__all__ = [
    "PORT_FILE",
    "check_up",
    "connection",
    "environ",
    "is_named",
    "is_of_up",
    "kubeconfig_option",
    "naming_up",
]

LOCAL = Path(".bedplate") / "kubeconfig"
PORT_FILE = "port"
"""Beside the kubeconfig of `bedplate up`: where its API server listens, or did when it last ran."""


def is_of_up() -> bool:
    """Whether no other cluster than that of `bedplate up` in this folder is named."""
    return not os.environ.get("KUBECONFIG") and LOCAL.exists()


def environ() -> dict[str, str]:
    """This process's environment, with the kubeconfig of `bedplate up` in this folder where no other is named."""
    variables = dict(os.environ)
    if is_of_up():
        variables["KUBECONFIG"] = str(LOCAL.resolve())
    return variables


def check_up(kubeconfig: str = "") -> None:
    """Raise where this file, or that of the environment, is of a `bedplate up` that does not run."""
    file = Path(kubeconfig or environ().get("KUBECONFIG", "").split(os.pathsep)[0])
    folder = file.parent.absolute()
    try:
        port = int((folder / PORT_FILE).read_text())
        if not re.search(rf"//127\.0\.0\.1:{port}\b", file.read_text(encoding="utf-8")):
            return
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except ConnectionRefusedError:
        again = f"bedplate up --data {shlex.quote(str(folder))}"
        raise errors.Unavailable(
            f"bedplate up in {folder} is not running", hint=f"start it again, in another terminal: {again}"
        ) from None
    except (OSError, OverflowError, ValueError):
        # Of another cluster, or a question that its client can ask better.
        return


def connection(kubeconfig: str) -> ClientConfig:
    """How to reach the cluster of this file, or of the environment where it is empty."""
    from bedplate.kube import config

    check_up(kubeconfig)
    with naming_up():
        return config.load(kubeconfig or None, environ=environ())


@contextlib.contextmanager
def naming_up() -> Iterator[None]:
    """Name the kubeconfig of `bedplate up` among the places that were looked at in vain."""
    from bedplate.kube import config

    try:
        yield
    except config.Unconfigured as err:
        environment, *others = err.problems
        problems = [environment, f"no `bedplate up` has left {LOCAL} in this folder", *others]
        raise config.Unconfigured(err.message, problems=problems, hint=err.hint) from None


def is_named() -> bool:
    """Whether kubectl finds a cluster here by itself, or that of `bedplate up`."""
    is_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    return is_pod or bool(environ().get("KUBECONFIG")) or (Path.home() / ".kube" / "config").exists()


kubeconfig_option = click.option(
    "--kubeconfig",
    default="",
    help="Kubeconfig of the cluster.  [default: $KUBECONFIG, .bedplate/kubeconfig of `bedplate up`, ~/.kube/config]",
)
