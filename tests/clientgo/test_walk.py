"""A client-go program of ours (`walk`) on both servers.

It uses typed clients that write protobuf, informers, leader election, dynamic clients, apply configurations, events.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import uuid

import pytest
from tests import programs, servers

pytestmark = pytest.mark.external

SOURCE = pathlib.Path(__file__).parent / "walk"
STEPS = ("typed", "informer", "election", "dynamic", "apply", "events", "discovery", "smaller")
BUILD_TIMEOUT_S = 900
STEP_TIMEOUT_S = 180


@pytest.fixture(scope="session")
def walk() -> pathlib.Path:
    """The program, built once per content of its sources."""
    digest = hashlib.sha256()
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    program = servers.cache_folder() / "walk" / digest.hexdigest()[:16] / "bin" / "walk"
    if not program.exists():
        build(program)
    return program


def build(program: pathlib.Path) -> None:
    go = str(programs.on_path("go"))
    program.parent.mkdir(parents=True, exist_ok=True)
    fresh = program.with_name(f"walk-{os.getpid()}")
    done = subprocess.run(
        [go, "build", "-trimpath", "-buildvcs=false", "-o", str(fresh), "."],
        cwd=SOURCE,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    fresh.replace(program)


@pytest.mark.parametrize("step", STEPS)
def test_walks(step: str, walk: pathlib.Path, server: servers.Server) -> None:
    namespace = f"walk-{uuid.uuid4().hex[:8]}"
    kubectl = programs.built("kubectl")
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
    subprocess.run([str(kubectl), "create", "ns", namespace], env=environment, check=True, capture_output=True)
    done = subprocess.run(
        [str(walk), "-kubeconfig", str(server.kubeconfig), "-namespace", namespace, "-step", step],
        capture_output=True,
        text=True,
        timeout=STEP_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"


def test_every_step_of_the_program_is_walked(walk: pathlib.Path) -> None:
    done = subprocess.run([str(walk)], capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False)
    assert sorted(STEPS) == done.stdout.split()
