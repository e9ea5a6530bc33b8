"""Which cluster a command is about, when the command line does not say.

In: the environment, the folder in which the command runs. Out: the environment to find a kubeconfig with: KUBECONFIG
where it is set, else that of `bedplate up` in this folder, else as kubectl does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bedplate.kube.config import ClientConfig

__all__ = ["connection", "environ", "is_of_up", "kubeconfig_option"]

LOCAL = Path(".bedplate") / "kubeconfig"


def is_of_up() -> bool:
    """Whether no other cluster than that of `bedplate up` in this folder is named."""
    return not os.environ.get("KUBECONFIG") and LOCAL.exists()


def environ() -> dict[str, str]:
    """This process's environment, with the kubeconfig of `bedplate up` in this folder where no other is named."""
    variables = dict(os.environ)
    if is_of_up():
        variables["KUBECONFIG"] = str(LOCAL.resolve())
    return variables


def connection(kubeconfig: str) -> ClientConfig:
    """How to reach the cluster of this file, or of the environment where it is empty."""
    from bedplate.kube import config

    return config.load(kubeconfig or None, environ=environ())


kubeconfig_option = click.option(
    "--kubeconfig",
    default="",
    help="Kubeconfig of the cluster.  [default: $KUBECONFIG, .bedplate/kubeconfig of `bedplate up`, ~/.kube/config]",
)
