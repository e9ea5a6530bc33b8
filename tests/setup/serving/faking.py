"""The setup tool of a head with stages that need no nodes, and what its tests ask about it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import types
from pathlib import Path
from typing import Any

from tests.setup.serving.kubernetessetup import SECRET

from bedplate.head.folder import creation, datafolder
from bedplate.setup.serving import KubernetesSetups, runs

__all__ = ["SECRET", "Fake", "program"]

_PROGRAM = Path(__file__).with_name("kubernetessetup.py")


def program(folder: Path) -> tuple[str, ...]:
    """How the tool is called whose world is below that folder."""
    return (sys.executable, str(_PROGRAM), str(folder))


class Fake:
    """A data folder for the tool below `folder`, and how its stages behave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = folder / "world"
        self.data = folder / "data"
        self.state = self.data / "setup"

    async def make(self, nodes: int = 3) -> Fake:
        self.world.mkdir()
        await creation.make(self.data, name="basecm10", nodes=nodes)
        return self

    async def setups(self) -> KubernetesSetups:
        """As a daemon has them: of the tree as it is now, in a folder that the tool can open."""
        async with datafolder.open_head(self.data) as opened:
            head: Any = types.SimpleNamespace(tree=opened.head.tree)
        return KubernetesSetups(head, self.data, "basecm10", program=program(self.folder))

    def end(self) -> None:
        """Let no process be left."""
        for cluster in runs.clusters(self.state):
            start = runs.read_start(self.state, cluster)
            if start is not None and runs.is_tool(start.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(start.pid, signal.SIGKILL)

    def will(self, what: str) -> None:
        """From now on `hold`, `fail` or `slow`."""
        (self.world / what).touch()

    def will_not(self, what: str) -> None:
        (self.world / what).unlink(missing_ok=True)

    def leaks(self) -> list[str]:
        """The files that have the password which stages say."""
        leaks = []
        for file in self.folder.rglob("*"):
            # Those of the database come and go with the tool.
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                if SECRET.encode() in file.read_bytes():
                    leaks.append(str(file))
        return leaks
