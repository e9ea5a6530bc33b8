"""The environment module of a cluster: `module load kubernetes/<cluster>/<version>` gives kubectl its KUBECONFIG.

In: the folder of the head's data, a cluster and its version. Out: the path and the text of the file, and its removal.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from bedplate.head.render.text import filled

__all__ = ["FOLDER", "TEMPLATE", "is_there", "place", "remove", "text"]

FOLDER = "modulefiles"
TEMPLATE = """\
#%Module1.0
## Kubernetes cluster $CLUSTER, version $VERSION
proc ModulesHelp { } {
    puts stderr "kubectl and helm for the Kubernetes cluster $CLUSTER"
}
module-whatis "Kubernetes cluster $CLUSTER, version $VERSION"
conflict kubernetes
setenv KUBECONFIG "$CONFIG"
setenv KUBERNETES_CLUSTER "$CLUSTER"
prepend-path PATH "/usr/local/bin"
"""


def place(data: Path, cluster: str, version: str) -> Path:
    """Where the module file of a cluster is; `module use` takes the folder."""
    return data / FOLDER / "kubernetes" / cluster / version


def text(template: str, cluster: str, version: str, config: Path) -> str:
    """The file."""
    return filled(template, {"CLUSTER": cluster, "VERSION": version, "CONFIG": str(config)})


def is_there(data: Path, cluster: str) -> bool:
    """Whether a cluster has a module file."""
    return (data / FOLDER / "kubernetes" / cluster).is_dir()


def remove(data: Path, cluster: str) -> bool:
    """Remove all module files of a cluster, and folders that are empty then; whether there were any."""
    folder = data / FOLDER / "kubernetes" / cluster
    is_there = folder.is_dir()
    shutil.rmtree(folder, ignore_errors=True)
    for above in (folder.parent, folder.parent.parent):
        with contextlib.suppress(OSError):
            above.rmdir()
    return is_there
