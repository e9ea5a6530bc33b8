"""What cm-kubernetes-setup gives its stages as `context.services`.

In: the head that was reached, and the flags that stages read. Out: one frozen value; nothing is opened here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bedplate.ui.backend import Backend

__all__ = ["Options", "Services"]


@dataclass(frozen=True, slots=True)
class Options:
    """Flags that are no answers: how to run, not what to build. Defaults are those of the command line."""

    min_reboot_timeout_s: int = 300
    is_strict: bool = False
    """Refuse what is only warned about else, such as too little memory."""
    skips_dns_check: bool = False
    skips_package_manager_check: bool = False
    has_distro_checks: bool = True
    removes_ceph_storage: bool = False
    is_verbose: bool = False


@dataclass(frozen=True, slots=True)
class Services:
    """The head, where this run may keep files, and how to run."""

    backend: Backend
    state: Path
    """A folder for the files of this cluster that only its owner reads: `<state folder>/<cluster>`, which exists."""
    cluster: str
    data: Path | None = None
    """The data folder of the head, where it is on this machine."""
    options: Options = field(default_factory=Options)
