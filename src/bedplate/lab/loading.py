"""Bring an image archive into a running lab.

In: an archive as `docker save` or an OCI tool writes it. Out: the image in every node's containerd (so that
`imagePullPolicy: Never` finds it) and in the lab's registry (so that `Always` does).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

from bedplate.core import errors
from bedplate.lab import cgroups, images, state
from bedplate.lab.nodes import INSIDE, Node

__all__ = ["load_image"]


async def load_image(name: str, archive: Path, shelf: state.Shelf, report: Callable[[str], None]) -> list[str]:
    """The full names of the images in the archive, once they are everywhere."""
    record = shelf.need(name)
    folder = shelf.folder(name)
    names = await asyncio.to_thread(images.Store(folder / "images").load_archive, archive)
    if not names:
        raise errors.Invalid(f"{archive} holds no named image", hint="give it a tag before saving it")
    tree = cgroups.Tree(name)
    passing = folder / f"load-{archive.name}"
    await asyncio.to_thread(shutil.copyfile, archive, passing)
    try:
        async with asyncio.TaskGroup() as group:
            for each in record.plan.nodes:
                report(f"loading into {each.name}")
                node = Node(each.name, folder, tree)
                command = ["ctr", "-n", "k8s.io", "images", "import", str(INSIDE / passing.name)]
                group.create_task(node.run(command, f"load {archive.name} into {each.name}", timeout_s=300))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        passing.unlink(missing_ok=True)
    return names
