"""Leave nothing behind.

In: the name of a lab, whatever state it is in. Out: no process, namespace, interface, mount, control group or file of
it.

Everything hangs on processes in one tree of control groups: with the last of them go the namespaces, with those the
bridges, cables and mounts, the pods' too. So the work is to end the processes, remove the groups and delete the folder,
and it can be done by any process that knows the name: by `lab up` when it fails, by `lab down`, by the watchdog, by the
next `lab up`."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from bedplate.core import errors
from bedplate.lab import cgroups
from bedplate.lab.plan import interface_name

__all__ = ["has_remains", "is_alive", "remove"]

_RETRY_S = 0.1


def is_alive(name: str) -> bool:
    """Whether any process of the lab runs."""
    return bool(cgroups.Tree(name).members())


def has_remains(name: str, folder: Path) -> bool:
    """Whether anything of the lab is on this machine."""
    return folder.exists() or cgroups.Tree(name).exists or Path("/sys/class/net", interface_name(name)).exists()


def remove(name: str, folder: Path, *, deadline_s: float = 30.0) -> None:
    """Remove the lab, all of it. Nothing there is fine."""
    tree = cgroups.Tree(name)
    tree.kill(deadline_s)
    interface = interface_name(name)
    subprocess.run(["ip", "link", "delete", interface], capture_output=True, timeout=30, check=False)
    tree.remove(deadline_s)
    end = time.monotonic() + deadline_s
    # The kernel drops a dead process's mounts a moment after the process; until then a folder may be busy.
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            if time.monotonic() > end:
                raise errors.Unavailable(f"{folder} cannot be deleted", hint="is a file in it open?")
            time.sleep(_RETRY_S)
