"""Who may be asked to run kubeadm: nodes whose role says that they belong to the cluster."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest
from tests.head.render import rooms
from tests.ui.rest.serving import Served, served

from bedplate.api.desired import Errand
from bedplate.api.headapi import ErrandState, ErrandTold, Kubeadm
from bedplate.core import errors
from bedplate.head import errands
from bedplate.head.members import work


def test_nodes_are_asked_for_what_their_roles_say() -> None:
    tree = rooms.full()
    asked = {"action": "join", "cluster": "default"}
    assert work(tree, ["node002", "node004"], Kubeadm(action="join", cluster="default")) == {
        "node002": asked,
        "node004": asked,
    }
    assert work(tree, ["node001"], Kubeadm(action="init", cluster="default"))["node001"]["action"] == "init"
    assert work(tree, ["node007"], Kubeadm(action="reset", cluster="gone"))


@pytest.mark.parametrize(
    ("nodes", "action", "cluster", "text"),
    [
        (["node001", "node002"], "init", "default", "a cluster begins on one node"),
        (["node004"], "init", "default", "node004 is not a control plane node of default"),
        (["node007"], "join", "default", "node007 has no role kubelet for the cluster default"),
        (["node001"], "join", "other", "other"),
        (["node999"], "reset", "default", "node999"),
    ],
)
def test_others_are_refused_with_a_sentence(nodes: list[str], action: str, cluster: str, text: str) -> None:
    with pytest.raises((errors.Invalid, errors.NotFound), match=text):
        work(rooms.full(), nodes, Kubeadm(action=action, cluster=cluster))  # type: ignore[arg-type]


@pytest.fixture
async def server(tmp_path: pathlib.Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as opened:
        yield opened


async def test_an_administrator_asks_the_agent_gets_it_and_progress_is_kept(server: Served) -> None:
    async with server.client() as admin, server.client("node001") as node:
        (asked,) = await admin.ask_errand(["node001"], "kubeadm", kubeadm=Kubeadm(action="reset", cluster="x"))
        wanted = await node.desired("node001")
        assert wanted is not None
        assert wanted.state.errands == (Errand(id=asked.id, kind="kubeadm", action="reset", cluster="x"),)
        await node.report("node001", errands=[ErrandTold(id=asked.id, state="accepted")])
        await node.report("node001", errands=[ErrandTold(id=asked.id, state="accepted", text="[reset] phase")])
        (told,) = await admin.errands(["node001"])
        assert (told.state, told.text, told.action, told.cluster) == ("accepted", "[reset] phase", "reset", "x")
        await node.report("node001", errands=[ErrandTold(id=asked.id, state="failed", text="why", lines=["a", "b"])])
        (told,) = await admin.errands(["node001"])
        assert (told.state, told.text, told.lines) == ("failed", "why", ["a", "b"])


async def test_it_is_an_administrators_to_ask_and_nothing_else_can_be_asked(server: Served) -> None:
    reset = Kubeadm(action="reset", cluster="x")
    async with server.client() as admin:
        for body in ({"kind": "kubeadm"}, {"kind": "reboot", "kubeadm": reset}):
            with pytest.raises(errors.Invalid, match="belong together"):
                await admin.ask_errand(["node001"], body["kind"], kubeadm=body.get("kubeadm"))  # type: ignore[arg-type]
        with pytest.raises(errors.Invalid):
            await admin.ask_errand(["node001"], "kubeadm", kubeadm=Kubeadm(action="rm -rf /", cluster="x"))  # type: ignore[arg-type]
    from bedplate.head.policy import Identity, may

    assert may(Identity("bob", "operator"), "edit", "errands")
    assert not may(Identity("bob", "operator"), "edit", "kubeadm")


def test_an_upgrade_is_applied_on_one_control_plane_node_and_names_its_version() -> None:
    tree = rooms.full()
    asked = Kubeadm(action="upgrade-apply", cluster="default", version="1.35.4")
    assert work(tree, ["node001"], asked) == {
        "node001": {"action": "upgrade-apply", "cluster": "default", "version": "1.35.4"}
    }
    follow = Kubeadm(action="upgrade-node", cluster="default", version="1.35.4")
    assert set(work(tree, ["node002", "node004"], follow)) == {"node002", "node004"}
    for nodes, request, text in (
        (["node001", "node002"], asked, "an upgrade is applied on one node"),
        (["node004"], asked, "node004 is not a control plane node of default"),
        (["node001"], Kubeadm(action="upgrade-node", cluster="default"), "an upgrade, and nothing else, has a version"),
        (["node001"], Kubeadm(action="join", cluster="default", version="1.35.4"), "an upgrade, and nothing else"),
        (["node007"], follow, "node007 has no role kubelet"),
    ):
        with pytest.raises(errors.Invalid, match=text):
            work(tree, nodes, request)


async def test_the_version_of_an_upgrade_is_three_numbers_and_reaches_the_agent(server: Served) -> None:
    async with server.client() as admin:
        for version in ("1.35", "v1.35.4", "1.35.4; reboot", "--force", "1.35.4\n"):
            request = Kubeadm(action="upgrade-node", cluster="default", version=version)
            with pytest.raises(errors.Invalid, match="version"):
                await admin.ask_errand(["node001"], "kubeadm", kubeadm=request)
    state = ErrandState(
        id="1", node="n", kind="kubeadm", state="waiting", asked="", until="", by="a", action="upgrade-node",
        cluster="default", version="1.35.4",
    )  # fmt: skip
    assert errands._errand(state, ()).version == "1.35.4"
