"""An image with Python and ipykernel, as a user of Jupyter has one: assembled here, because none can be fetched.

In: the Python that runs the tests, and the packages of Jupyter's environment (`tests/operators/jupyter/peers.py`).
Out: the image's name; its layer is in the store of the cache folder, from which every lab's registry serves.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.deploy.conftest import load_tool
from tests.operators.jupyter import peers

from bedplate.lab import binaries, images

IMAGE = "docker.io/bedplate/kernel:latest"
_LEFT = {"test", "tests", "__pycache__", "site-packages", "idlelib", "tkinter", "lib2to3", "ensurepip"}
_ACCOUNTS = {"etc/passwd": "root:x:0:0::/:/bin/sh\n", "etc/group": "root:x:0:\n"}
# Run by Jupyter's Python: the files of ipykernel and of all that it needs.
_NEEDED = """
import importlib.metadata, json, re
files, names = {}, ["ipykernel"]
for name in names:
    try:
        package = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        continue
    files |= {str(file): str(file.locate()) for file in package.files or ()}
    needs = [need for need in package.requires or () if "extra ==" not in need]
    names += {re.match(r"[\\w.-]+", need)[0] for need in needs} - set(names)
print(json.dumps(files))
"""


def make() -> str:
    """The image, made unless what goes in was put in before."""
    rootfs = load_tool("rootfs")
    library = Path(os.__file__).parent
    inside = f"usr/lib/{library.name}"
    files = {name: path for name, path in rootfs.interpreter().items() if not name.endswith(".pyc")}
    # Beside the standard library, where every Python looks, whichever distribution it comes from.
    packages = _packages()
    files |= {f"{inside}/{name}": path for name, path in (_standard(library) | packages).items()}
    elves = [path for path in files.values() if rootfs.is_elf(path)]
    theirs = {path.resolve() for path in packages.values()}
    files |= {name: path for name, path in rootfs.libraries(elves).items() if path.resolve() not in theirs}
    store = images.Store(binaries.cache_folder() / "images")
    store.make(images.Recipe(IMAGE, files, texts=_ACCOUNTS))
    return IMAGE


def _standard(library: Path) -> dict[str, Path]:
    """The standard library, without what no program needs: path below its folder -> file."""
    found = {path.relative_to(library).as_posix(): path for path in sorted(library.rglob("*.py"))}
    return {name: path for name, path in found.items() if not _LEFT & set(name.split("/"))}


def _packages() -> dict[str, Path]:
    """ipykernel and what it needs: path below the folder of packages -> file."""
    told = subprocess.run([peers.python(), "-c", _NEEDED], capture_output=True, text=True, check=True, timeout=120)
    files: dict[str, str] = json.loads(told.stdout)
    kept = {name: Path(path) for name, path in files.items() if not name.startswith("..")}
    return {name: path for name, path in kept.items() if path.is_file() and not _LEFT & set(name.split("/"))}
