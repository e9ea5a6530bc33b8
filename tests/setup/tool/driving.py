"""Somebody who calls cm-kubernetes-setup on a head in a folder, with stages that need no nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from tests.setup.engine import fakes
from tests.setup.places import MINIMAL

from bedplate.head import Edit, Identity, Obj
from bedplate.head.folder import creation, datafolder
from bedplate.head.service import Head
from bedplate.setup.engine import Stage
from bedplate.setup.tool.command import PROGRAM, command


class Tool:
    """`data` is the head's folder, `world` what the stages change."""

    def __init__(self, folder: Path, *, nodes: int = 3) -> None:
        self.data = folder / "data"
        self.world = folder / "world"
        self.log = folder / "setup.log"
        self.answers = folder / "answers.yaml"
        self.world.mkdir()
        self.answers.write_text(MINIMAL)
        asyncio.run(creation.make(self.data, name="basecm10", nodes=nodes))

    def __call__(self, *words: str | Path, on_head: bool = True, stdin: str | None = None) -> Result:
        arguments = [str(word) for word in words]
        if on_head:
            arguments += ["--data", str(self.data)]
        return CliRunner().invoke(command, arguments, input=stdin, prog_name=PROGRAM)

    def deploy(self, *words: str, stdin: str | None = None) -> Result:
        return self("-c", self.answers, "--log-file", self.log, *words, stdin=stdin)

    def stages(self, answers: Any = None, site: Any = None) -> list[Stage]:
        return fakes.stages(self.world)

    def put(self, *objects: tuple[str, Obj]) -> None:
        """Commit objects to the head."""

        async def commit() -> None:
            async with datafolder.open_head(self.data) as opened:
                head: Head = opened.head
                edits: Sequence[Edit] = [Edit(mode, obj.key, None, obj) for mode, obj in objects]
                await head.commit_as(Identity.local("admin"), edits)

        asyncio.run(commit())

    def cluster(self, name: str, port: int = 10443) -> None:
        """A cluster in the tree, as a deployment leaves it."""
        values: Any = {"kubernetes_api_server_proxy_port": port}
        self.put(("kubernetes", Obj("KubeCluster", name, values)))

    def journal(self, cluster: str = "default") -> dict[str, Any]:
        journal: dict[str, Any] = json.loads((self.data / "setup" / cluster / "journal.json").read_text())
        return journal
