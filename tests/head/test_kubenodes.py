"""Labels and taints of the head on nodes of Kubernetes: its own, kept right, taken away, and nobody else's touched."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests import servers
from tests.head import sites
from tests.head.committing import commit, commit_session
from tests.ui.rest.serving import KEY
from tests.ui.transcripts.driving import Desk
from tests.waiting import until

from bedplate.api import core
from bedplate.api.desired import Taint
from bedplate.api.resources import NODES
from bedplate.core import errors
from bedplate.core.clock import SystemClock
from bedplate.head import kubenodes
from bedplate.head.entities import SCHEMA
from bedplate.head.kubenodes import ANNOTATION, KubeNodes, Wish, plan
from bedplate.head.objects import Obj
from bedplate.head.service import Head
from bedplate.head.session import Edit
from bedplate.head.vault import Vault
from bedplate.head.wants import Wants
from bedplate.kube import Client
from bedplate.store.sqlite import SqliteStore

PLANE, WORKER = "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/worker"
CLOUDS = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


def node(taints: list[dict[str, str]] = [], note: str = "", **labels: str) -> core.Node:  # noqa: B006
    metadata: dict[str, Any] = {"name": "a", "labels": labels, "annotations": {ANNOTATION: note} if note else {}}
    return msgspec.convert({"metadata": metadata, "spec": {"taints": taints}}, core.Node)


def noted(labels: list[str], taints: list[str]) -> str:
    return msgspec.json.encode(kubenodes.Ours(labels, taints)).decode()


def test_item_189_a_node_as_it_should_be_is_left_alone_and_one_that_is_not_gets_its_labels() -> None:
    assert plan(node(), Wish()) is None
    assert plan(node(note=noted(["tier"], []), tier="a"), Wish({"tier": "a"})) is None
    for drifted in (node(), node(note=noted(["tier"], []), tier="b"), node(note=noted(["tier"], []))):
        steps = plan(drifted, Wish({"tier": "a"}))
        assert steps is not None and steps.taints is None and steps.last is None
        body = {"metadata": {"labels": {"tier": "a"}, "annotations": {ANNOTATION: noted(["tier"], [])}}}
        assert steps.first == body


def test_what_is_no_longer_assigned_is_applied_away_with_the_annotation() -> None:
    steps = plan(node(note=noted(["tier"], []), tier="a", other="x"), Wish())
    assert steps is not None and steps.first == {"metadata": {"labels": {}, "annotations": {}}}
    assert plan(node(note="not JSON"), Wish()) is None


def test_taints_of_others_stay_and_ours_are_noted_before_they_come_and_until_they_are_gone() -> None:
    ours = Taint(key="x", effect="NoSchedule", value="1")
    steps = plan(node([CLOUDS]), Wish(taints=[ours]))
    assert steps is not None and steps.first is not None
    assert steps.first["metadata"]["annotations"] == {ANNOTATION: noted([], ["x:NoSchedule"])}
    assert steps.taints == [CLOUDS, {"key": "x", "value": "1", "effect": "NoSchedule"}] and steps.last is None
    there = [CLOUDS, {"key": "x", "value": "1", "effect": "NoSchedule"}]
    assert plan(node(there, noted([], ["x:NoSchedule"])), Wish(taints=[ours])) is None
    gone = plan(node(there, noted([], ["x:NoSchedule"])), Wish())
    assert gone is not None and gone.taints == [CLOUDS]
    assert gone.last == {"metadata": {"labels": {}, "annotations": {}}}
    assert gone.first is None, "the annotation says already whose the taint is"


@pytest.fixture
async def head(tmp_path: pathlib.Path) -> AsyncIterator[Head]:
    async with SqliteStore(tmp_path / "x.db", history_s=None) as store, Head(store, SCHEMA, Vault(KEY)) as opened:
        yield opened


def tree(name: str) -> list[Edit]:
    """The tree of the manual with one more node, of another name on every server."""
    objects = [*sites.manual().objects(), sites.node(name)]
    return [Edit(mode, obj.key, None, obj) for mode, obj in objects]


@pytest.fixture
async def name(tmp_path: pathlib.Path, head: Head, client: Client, server: servers.Server) -> AsyncIterator[str]:
    """A node of Kubernetes and of the tree, with a label and a taint of others; the head follows it."""
    name = f"n{uuid.uuid4().hex[:8]}"
    await commit(head, tree(name))
    file = kubenodes.file_of(tmp_path, "default")
    file.parent.mkdir()
    file.write_bytes(pathlib.Path(server.kubeconfig).read_bytes())
    await client.create(NODES.raw(), {"metadata": {"name": name, "labels": {"own": "1"}}, "spec": {"taints": [CLOUDS]}})
    running = asyncio.create_task(KubeNodes(head, Wants(head), tmp_path, clock=SystemClock()).run())
    try:
        yield name
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        with contextlib.suppress(errors.NotFound):
            await client.delete(NODES, name)


async def has(client: Client, name: str, **wanted: str | None) -> bool:
    """Whether a node has these labels; None: whether it has it not."""
    labels = (await client.get(NODES, name)).metadata.labels
    return all(labels.get(key) == value for key, value in wanted.items())


async def taints(client: Client, name: str) -> set[str]:
    return {f"{taint.key}:{taint.effect}" for taint in (await client.get(NODES, name)).spec.taints}


async def test_item_189_label_sets_label_nodes_of_a_cluster_and_what_others_change_is_put_right(
    head: Head, client: Client, name: str
) -> None:
    await until(lambda: has(client, name, **{WORKER: ""}))
    session = head.session()
    values = {"labels": ("tier=x", "rack=7"), "nodes": (name,)}
    session.put(("kubernetes", "default", "label_sets", "mine"), Obj("LabelSet", "mine", values))
    await commit_session(head, session)
    await until(lambda: has(client, name, tier="x", rack="7", own="1"))

    await client.patch(NODES, name, {"metadata": {"labels": {"tier": "wrong", "own": "2"}}})
    await until(lambda: has(client, name, tier="x", own="2"))

    session = head.session()
    session.put(("device", name), None)
    session.set(("kubernetes", "default", "label_sets", "mine"), "nodes", ())
    await commit_session(head, session)
    await until(lambda: has(client, name, tier=None, rack=None, own="2", **{WORKER: None}))
    found = await client.get(NODES, name)
    assert ANNOTATION not in found.metadata.annotations
    assert CLOUDS["key"] in {taint.key for taint in found.spec.taints}
    await client.delete(NODES, name)
    await asyncio.sleep(0.1)
    with pytest.raises(errors.NotFound):
        await client.get(NODES, name)


async def test_item_189_labels_and_taints_set_in_a_shell_come_and_go_and_those_of_others_stay(
    head: Head, client: Client, name: str
) -> None:
    others, ours = f"{CLOUDS['key']}:NoSchedule", f"{PLANE}:NoSchedule"
    desk = Desk(head)
    await desk.do(
        f"device use {name}", "roles", "assign kubelet", "set kubernetescluster default", "set controlplane yes",
        "set worker no", "commit", "kubernetes use default", "labelsets", "add mine", "set labels tier=x rack=7",
        f"set nodes {name}", "commit",
    )  # fmt: skip
    await until(lambda: has(client, name, tier="x", rack="7", own="1", **{PLANE: "", WORKER: None}))

    async def has_both() -> bool:
        return await taints(client, name) == {others, ours}

    await until(has_both)

    # Somebody else takes ours away and adds another one: ours comes back, theirs stays.
    theirs = {"key": "theirs", "effect": "NoExecute"}
    await client.patch(NODES, name, {"spec": {"taints": [CLOUDS, theirs]}})

    async def is_back() -> bool:
        return await taints(client, name) == {others, ours, "theirs:NoExecute"}

    await until(is_back)
    await desk.do("set labels tier=y", "commit", f"device use {name}", "roles", "use kubelet", "set worker yes",
                  "commit")  # fmt: skip
    await until(lambda: has(client, name, tier="y", rack=None, own="1", **{PLANE: "", WORKER: ""}))

    async def is_gone() -> bool:
        return await taints(client, name) == {others, "theirs:NoExecute"}

    await until(is_gone)
    await desk.do("..", "unassign kubelet", "commit", "kubernetes use default", "labelsets", "remove mine", "commit")
    await until(lambda: has(client, name, tier=None, own="1"))
    assert await taints(client, name) == {others, "theirs:NoExecute"}
