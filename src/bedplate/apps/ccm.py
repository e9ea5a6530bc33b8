"""The three cloud controller managers: one manager under three names. See `bedplate.cloud.manager.process`.

The programs differ only in their name and in the cloud that they work for when `--cloud-provider` is absent.
"""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["cloudlycke", "nvidia_bmm", "oxide"]


def nvidia_bmm() -> NoReturn:
    """The program nvidia-bmm-cloud-controller-manager."""
    _run("nvidia-bmm")


def oxide() -> NoReturn:
    """The program oxide-cloud-controller-manager."""
    _run("oxide")


def cloudlycke() -> NoReturn:
    """The program cloudlycke-cloud-controller-manager."""
    _run("cloudlycke")


def _run(provider: str) -> NoReturn:
    from bedplate.cloud.manager import process

    sys.exit(process.main(f"{provider}-cloud-controller-manager", provider, sys.argv[1:]))
