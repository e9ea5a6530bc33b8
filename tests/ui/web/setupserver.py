"""A head whose setup tool has stages that need no nodes, as a process: a program for tests in a browser.

python setupserver.py FOLDER PORT
"""

from __future__ import annotations

import asyncio
import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.setup.serving import faking

from bedplate.head.daemon import Daemon, Options
from bedplate.head.folder.datafolder import Folder
from bedplate.setup.serving import KubernetesSetups
from bedplate.ui import web


async def main(folder: Path, port: int) -> None:
    setups = functools.partial(KubernetesSetups, program=faking.program(folder))
    daemon = Daemon(Folder.find(folder / "data"), Options(port=port), web.serve, setups=setups)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(daemon.run())
        await daemon.started.wait()
        print(daemon.url, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
