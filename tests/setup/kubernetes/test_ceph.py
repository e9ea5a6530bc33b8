"""The pool of the Ceph add-on, with a program ceph that only remembers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.setup.kubernetes import sites

from bedplate.core import errors
from bedplate.head import Obj, Tree
from bedplate.setup.kubernetes import ceph, remove

FSID = "2a5e3bbf-0f25-4dc5-9ab8-2a49eb8ae3ee"
POOL = ceph.Pool(FSID, "kube")


def _tree(**pools: str) -> Tree:
    objects = []
    for cluster, pool in pools.items():
        variables = {"fsid": FSID, "pool": pool}
        environment = {name: Obj("ApplicationEnvironment", name, {"value": text}) for name, text in variables.items()}
        application = Obj("Application", "ceph", {}, {}, {"environment": environment})
        group = Obj("AppGroup", "system", {}, {}, {"applications": {"ceph": application}})
        children: Any = {"app_groups": {"system": group}} if pool else {}
        objects.append(("kubernetes", cluster, Obj("KubeCluster", cluster, {}, {}, children)))
    return sites.tree().with_objects(objects)


def _program(folder: Path, *, fsid: str = FSID, pools: str = '["kube", "other"]') -> str:
    """A ceph that lists its pools, and drops what it is told to."""
    state, program = folder / "pools", folder / "ceph"
    state.write_text(pools)
    program.write_text(
        "#!/bin/sh\n"
        f'case "$1 $3" in\n"fsid ") echo {fsid};;\n"osd ls") cat {state};;\n'
        f'"osd delete") echo "$@" > {folder}/deleted; echo \'["other"]\' > {state};;\n'
        "*) echo bad >&2; exit 22;;\nesac\n"
    )
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def test_the_pool_is_that_of_the_add_on_and_of_nobody_else() -> None:
    assert ceph.pool_of(_tree(default="kube", second="other"), "default") == POOL
    with pytest.raises(errors.Invalid, match=r"has no Ceph add-on.*nothing was changed"):
        ceph.pool_of(_tree(default=""), "default")
    with pytest.raises(errors.Invalid, match="used by the cluster second as well"):
        ceph.pool_of(_tree(default="kube", second="kube"), "default")


async def test_without_ceph_or_the_pool_or_the_right_cluster_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="no program ceph on this machine; nothing was changed"):
        await ceph.check(POOL, str(tmp_path))
    with pytest.raises(errors.Invalid, match="has no pool kube"):
        await ceph.check(POOL, _program(tmp_path, pools="[]"))
    with pytest.raises(errors.Invalid, match="is that of the cluster another, not of"):
        await ceph.check(POOL, _program(tmp_path, fsid="another"))
    await ceph.check(POOL, _program(tmp_path))


async def test_item_117_the_pool_is_deleted_and_a_repeated_stage_finds_it_gone(tmp_path: Path) -> None:
    path, said = _program(tmp_path), list[str]()
    context: Any = SimpleNamespace(say=said.append)
    await ceph.remove(POOL, context, path)
    assert (tmp_path / "deleted").read_text() == "osd pool delete kube kube --yes-i-really-really-mean-it\n"
    assert json.loads((tmp_path / "pools").read_text()) == ["other"]
    await ceph.remove(POOL, context, path)
    assert said == ["The pool kube was deleted", "The pool kube is gone"]
    with pytest.raises(errors.Terminal, match="no longer that of"):
        await ceph.remove(POOL, context, _program(tmp_path, fsid="another"))


def test_item_117_the_stage_comes_once_the_nodes_were_reset_and_only_with_the_flag() -> None:
    names = [stage.name for stage in remove.stages("default", POOL)]
    without = [stage.name for stage in remove.stages("default")]
    assert [name for name in names if name not in without] == ["Remove Ceph Storage"]
    assert names.index("Remove Ceph Storage") == names.index("Unassign Roles") + 1
