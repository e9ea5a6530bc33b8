"""cm-kubernetes-setup with stages that need no nodes: a program for tests of the page.

    python kubernetessetup.py FOLDER WORDS

Its stages write below FOLDER/world. There, `hold` keeps the second stage until it is gone, `fail` makes it fail, and
`slow` keeps the tool from beginning. What it says has a password in it, which must not be seen anywhere.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.setup.engine import fakes

from bedplate.core import errors
from bedplate.setup.engine import Context, Stage
from bedplate.setup.tool import operations
from bedplate.setup.tool.command import PROGRAM, command

SECRET = "hunter2-never-shown"


async def work(world: Path, context: Context) -> None:
    context.say(f"Pulling from https://robot:{SECRET}@mirror.example.com/")
    context.say("<script>alert(1)</script>")
    while (world / "hold").exists():
        await asyncio.sleep(0.02)
    if (world / "fail").exists():
        raise errors.Unavailable(f"https://robot:{SECRET}@mirror.example.com/ answered 500", hint="look at the mirror")
    await fakes.make(world, "etcd", lambda: None, context)


def stages(world: Path) -> list[Stage]:
    first, second, *others = fakes.stages(world)
    run = functools.partial(work, world)
    undo = functools.partial(fakes.unmake, world, "etcd", lambda: None)
    return [first, Stage(second.name, second.plugin, run, undo, effects="two files"), *others]


def main() -> None:
    folder = Path(sys.argv[1])
    world = folder / "world"
    world.mkdir(exist_ok=True)

    def deployment(answers: Any, site: Any) -> list[Stage]:
        return stages(world)

    def removal(cluster: str) -> list[Stage]:
        return stages(world)

    while (world / "slow").exists():
        time.sleep(0.02)
    operations.deployment = deployment
    operations.removal = removal
    command.main([*sys.argv[2:], "--log-file", str(folder / "setup.log")], prog_name=PROGRAM)


if __name__ == "__main__":
    main()
