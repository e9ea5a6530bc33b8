"""Where an administrator's kubeconfig of a cluster is.

In: a head, its data folder where that is on this machine, and a cluster. Out: a path, for `--kubeconfig-of`.
"""

from __future__ import annotations

from pathlib import Path

from bedplate.core import errors
from bedplate.head.kubenodes import file_of
from bedplate.ui.backend import Backend

__all__ = ["path_of"]


async def path_of(backend: Backend, cluster: str, data: Path | None) -> Path:
    """The file. Raises `Invalid` for the name of no cluster, `NotFound` for a file that is not there."""
    await backend.catch_up()
    names = sorted(backend.tree.mode("kubernetes"))
    if cluster not in names:
        raise errors.Invalid(f"there is no cluster {cluster!r}", hint=f"clusters: {', '.join(names) or 'none'}")
    if data is None:
        raise errors.NotFound(
            f"the kubeconfig of {cluster} is on the head node",
            hint="run this there, or name its data folder with --data",
        )
    file = file_of(data, cluster)
    if not file.is_file():
        raise errors.NotFound(f"there is no {file}", hint=f"was the cluster {cluster} deployed by another tool?")
    return file
