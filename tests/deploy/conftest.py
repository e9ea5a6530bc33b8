"""What the tests of the deployment share: the tools as programs, the image's files, and API servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import servers

ROOT = Path(__file__).parents[2]


def run_tool(name: str, *arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of tools/*.py as `make` does."""
    command = [sys.executable, str(ROOT / "tools" / name), *map(str, arguments)]
    environ = os.environ | (env or {})
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environ, cwd=ROOT)


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


@pytest.fixture(params=["real", "embedded"])
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """A real and an embedded API server, shared with other tests."""
    try:
        yield servers.shared.get(request.param)
    except servers.Missing as err:
        pytest.skip(str(err))
