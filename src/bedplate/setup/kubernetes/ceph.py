"""The pool of a cluster's Ceph add-on, deleted with the `ceph` program of this machine.

In: the tree of the head, in which the application `ceph` of a cluster has fsid and pool as variables. Out: `pool_of`,
pure; `check`, which refuses before anything is changed: no such add-on, no `ceph`, another Ceph cluster, no such pool,
or a pool that another Kubernetes cluster uses; `remove`, which deletes the pool, and does nothing where it is gone.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from bedplate.core import errors
from bedplate.head import Obj, Tree
from bedplate.setup.engine.stage import Context

__all__ = ["Pool", "check", "pool_of", "remove"]

_PROGRAM = "ceph"
_TIMEOUT_S = 60.0


class Pool(NamedTuple):
    """A pool and the Ceph cluster that it is in."""

    fsid: str
    name: str


def pool_of(tree: Tree, cluster: str) -> Pool:
    """The pool of a cluster's add-on. Raises `Invalid` where there is none, or where others use it, too."""
    own = _pools(tree, cluster)
    if not own:
        raise errors.Invalid(
            f"the cluster {cluster} has no Ceph add-on, and so no pool; nothing was changed",
            hint="leave out --remove-ceph-storage",
        )
    others = [name for name in tree.mode("kubernetes") if name != cluster and own[0] in _pools(tree, name)]
    if others:
        raise errors.Invalid(
            f"the pool {own[0].name} is used by the cluster {others[0]} as well; nothing was changed",
            hint="leave out --remove-ceph-storage",
        )
    return own[0]


def _pools(tree: Tree, cluster: str) -> list[Pool]:
    obj = tree.find("kubernetes", cluster)
    groups = obj.below("app_groups").values() if obj is not None else ()
    applications = [group.below("applications").get("ceph") for group in groups]
    pools = [Pool(_variable(each, "fsid"), _variable(each, "pool")) for each in applications if each is not None]
    return [pool for pool in pools if pool.fsid and pool.name]


def _variable(application: Obj, name: str) -> str:
    entry = application.below("environment").get(name)
    return str(entry.values.get("value") or "") if entry is not None else ""


async def check(pool: Pool, path: str | None = None) -> None:
    """Raises `Invalid` where the pool cannot be deleted from here."""
    if shutil.which(_PROGRAM, path=path) is None:
        raise errors.Invalid(
            "there is no program ceph on this machine; nothing was changed",
            hint="install it with the keyring of an administrator, or leave out --remove-ceph-storage",
        )
    fsid = (await _ask(["fsid"], path)).strip()
    if fsid != pool.fsid:
        raise errors.Invalid(
            f"ceph on this machine is that of the cluster {fsid or 'without an fsid'}, not of {pool.fsid}; "
            "nothing was changed",
            hint="run this where ceph reaches the right cluster, or leave out --remove-ceph-storage",
        )
    if pool.name not in await _listed(path):
        raise errors.Invalid(
            f"the Ceph cluster {pool.fsid} has no pool {pool.name}; nothing was changed",
            hint="leave out --remove-ceph-storage",
        )


async def remove(pool: Pool, context: Context, path: str | None = None) -> None:
    """Delete the pool. Raises `Terminal` with what ceph says."""
    if (await _ask(["fsid"], path)).strip() != pool.fsid:
        raise errors.Terminal(f"ceph on this machine is no longer that of {pool.fsid}", hint="correct it, then resume")
    if pool.name not in await _listed(path):
        context.say(f"The pool {pool.name} is gone")
        return
    await _ask(["osd", "pool", "delete", pool.name, pool.name, "--yes-i-really-really-mean-it"], path)
    context.say(f"The pool {pool.name} was deleted")


async def _listed(path: str | None) -> list[str]:
    try:
        names = json.loads(await _ask(["osd", "pool", "ls", "--format", "json"], path))
    except json.JSONDecodeError as err:
        raise errors.Terminal("ceph osd pool ls gave no list of pools", hint="see ceph status") from err
    return [str(name) for name in names] if isinstance(names, list) else []


async def _ask(words: Sequence[str], path: str | None) -> str:
    place = shutil.which(_PROGRAM, path=path) or _PROGRAM
    try:
        process = await asyncio.create_subprocess_exec(
            place,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as err:
        raise errors.Terminal(f"ceph cannot be started: {err.strerror}", hint="install it, then resume") from err
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            printed, wrong = await process.communicate()
    except TimeoutError:
        raise errors.Unavailable(
            f"ceph {words[0]} did not end in {_TIMEOUT_S:.0f} s", hint="see ceph status, then resume"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = " ".join(wrong.decode(errors="replace").split()[-40:]) or "it printed nothing"
        raise errors.Terminal(f"ceph {' '.join(words[:3])} failed with code {process.returncode}: {last}")
    return printed.decode(errors="replace")
