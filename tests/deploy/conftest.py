"""What the tests of the deployment share: the tools as programs, the image's files, helm, kubectl and API servers."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import programs, servers

ROOT = Path(__file__).parents[2]
CHARTS = ("cloudlycke", "nvidia-bmm", "oxide")
VERSION = (ROOT / "VERSION").read_text().strip().removeprefix("v")
IMAGE = f"{(ROOT / 'IMAGE').read_text().strip()}:{VERSION}"
"""The one image, as the files of the repository name it."""


def run_tool(name: str, *arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of tools/*.py as `make` does."""
    command = [sys.executable, str(ROOT / "tools" / name), *map(str, arguments)]
    environ = os.environ | (env or {})
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environ, cwd=ROOT)


def load_tool(name: str) -> Any:
    """One of tools/*.py as a module, with those it imports."""
    folder = str(ROOT / "tools")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def checkout(folder: Path) -> Path:
    """A copy of the repository's files for commands that change them, with the virtual environment of the original."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    for name in filter(None, names.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    original = Path(sys.executable).parent.parent
    (folder / ".venv").mkdir()
    for part in ("bin", "lib", "lib64", "pyvenv.cfg"):
        (folder / ".venv" / part).symlink_to(original / part)
    # `make` leaves a virtual environment alone that carries this mark.
    pins = load_tool("setup").pins()
    (folder / ".venv" / "bedplate-setup").write_text(f"{folder / '.venv'}\n{pins}\n")
    return folder


def chart_folder(provider: str) -> Path:
    return ROOT / "charts" / f"{provider}-cloud-controller-manager"


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:6]}"


def documents(text: str) -> list[dict[str, Any]]:
    """The objects in a manifest."""
    return [each for each in yaml.safe_load_all(text) if each]


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The only object of a kind."""
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


class Program:
    """helm or kubectl with a home of its own and, where one is given, a server."""

    def __init__(self, path: Path, home: Path, server: servers.Server | None = None) -> None:
        self._path = path
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))},
            "HOME": str(home),
            "KUBECACHEDIR": str(home / "cache"),
            "HELM_CACHE_HOME": str(home / "helm-cache"),
            "HELM_CONFIG_HOME": str(home / "helm-config"),
            "HELM_DATA_HOME": str(home / "helm-data"),
        }
        if server is not None:
            self.environ["KUBECONFIG"] = str(server.kubeconfig)

    def __call__(self, *arguments: str | Path, stdin: str = "") -> str:
        """Run it; what it printed. A failure fails the test with what it complained."""
        done = self.attempt(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{self._path.name} {' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def attempt(self, *arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(self._path), *map(str, arguments)]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=300, check=False, env=self.environ, cwd=ROOT
        )


@pytest.fixture
def helm(tmp_path: Path) -> Program:
    """helm without a cluster."""
    return Program(programs.built("helm", programs.HELM), tmp_path)


@pytest.fixture
def kubectl(server: servers.Server, tmp_path: Path) -> Program:
    return Program(programs.built("kubectl"), tmp_path, server)


@pytest.fixture
def namespace(kubectl: Program) -> Iterator[str]:
    """A namespace of this test's own."""
    name = unique("deploy")
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image as an archive named `registry.example/managers:test`."""
    target = tmp_path_factory.mktemp("image") / "managers.tar"
    done = run_tool("image.py", "archive", "--image", "registry.example/managers:test", "--output", target)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="session")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root file system that a container runtime would see."""
    folder = tmp_path_factory.mktemp("root")
    folder.chmod(0o755)
    with tarfile.open(archive) as image:
        for path in read_json(image, "manifest.json")[0]["Layers"]:
            with tarfile.open(fileobj=image.extractfile(path), mode="r:gz") as layer:
                layer.extractall(folder, filter="fully_trusted")
    return folder


def read_json(image: tarfile.TarFile, path: str) -> Any:
    handle = image.extractfile(path)
    assert handle is not None
    return json.load(handle)
