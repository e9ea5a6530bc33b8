"""Fixtures for scripts of unmodified kubectl and helm: the same script on both servers, its output compared."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from tests import programs
from tests.scripts import shell

KUBECTLS = ("v1.34.4", "v1.35.4")


@pytest.fixture(params=KUBECTLS)
def kubectl(request: pytest.FixtureRequest) -> pathlib.Path:
    """One of the kubectl versions promised to work."""
    return programs.built("kubectl", request.param)


@pytest.fixture
def helm() -> pathlib.Path:
    return programs.built("helm", programs.HELM)


@pytest.fixture
def on_both(tmp_path: pathlib.Path) -> Callable[[pathlib.Path, shell.Script], shell.Transcript]:
    """Run a script on the real and the embedded server, compare what it printed, give the real one's transcript."""

    def run(program: pathlib.Path, script: shell.Script) -> shell.Transcript:
        transcripts = {}
        namespace = shell.unique("script")
        for name in ("real", "embedded"):
            server = programs.server(name)
            home = tmp_path / name
            home.mkdir()
            one = shell.Shell(program, server, home, namespace)
            one.start()
            script(one)
            transcripts[name] = one.transcript
        shell.compare(transcripts["real"], transcripts["embedded"])
        return transcripts["real"]

    return run
