"""Who gets which software image how, and what is refused. No rsync runs here."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest
from tests.agent.imaging import bare, grow
from tests.head.committing import commit_session
from tests.ui.rest.serving import Served, served

from bedplate.api.headapi import ErrandTold, ImageAction, Transfer
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.desired import desired
from bedplate.head.images.imaging import Job, decide

WRITE = Transfer(write=True)


@pytest.fixture
async def server(tmp_path: pathlib.Path) -> AsyncIterator[Served]:
    grow(tmp_path / "images" / "default-image", {"/etc/os-release": "ID=test"})
    async with served(tmp_path, tree=bare()) as opened:
        yield opened


@pytest.fixture
async def client(server: Served) -> AsyncIterator[HeadClient]:
    async with server.client() as opened:
        yield opened


async def change(server: Served, path: tuple[str, ...], parameter: str, value: str) -> None:
    session = server.head.session()
    session.set(path, parameter, value)
    await commit_session(server.head, session)


# Who gets what


async def test_what_a_request_means_for_a_node(server: Served) -> None:
    tree = server.head.tree
    assert decide(tree, "node001", "imageupdate", Transfer()) == Job("default-image", "update", False, True, False)
    assert decide(tree, "node001", "imageupdate", WRITE) == Job("default-image", "update", True, True, False)
    full = Transfer(write=True, full=True, confirm=["node001"])
    assert decide(tree, "node001", "imageupdate", full) == Job("default-image", "full", True, True, True)
    assert decide(tree, "node001", "imageupdate", Transfer(full=True)).mode == "full", "a trial needs no confirmation"
    grab = decide(tree, "node001", "grabimage", Transfer(write=True, image="my-new-image"))
    assert grab == Job("my-new-image", "grab", True, True, False)
    for node, kind, transfer, words in (
        ("basecm10", "imageupdate", WRITE, "head node"),
        ("node001", "imageupdate", Transfer(write=True, full=True), "confirm|wiped"),
        ("node001", "imageupdate", Transfer(image="my-new-image"), "is default-image, not my-new-image"),
        ("node001", "grabimage", Transfer(full=True), "never full"),
    ):
        with pytest.raises(errors.Invalid, match=words):
            decide(tree, node, kind, transfer)  # type: ignore[arg-type]
    with pytest.raises(errors.NotFound):
        decide(tree, "node001", "grabimage", Transfer(image="nothing"))


async def test_nosync_is_never_written(server: Served) -> None:
    await change(server, ("device", "node001"), "installmode", "NOSYNC")
    with pytest.raises(errors.Invalid, match="NOSYNC: its files are left alone"):
        decide(server.head.tree, "node001", "imageupdate", WRITE)
    assert not decide(server.head.tree, "node001", "imageupdate", Transfer()).is_written


async def test_item_126_the_lists_of_the_category_and_of_snippets_are_in_the_desired_state(server: Served) -> None:
    session = server.head.session()
    session.append(("category", "default"), "excludelistupdate", "+ /var/log/keep")
    session.append(("category", "default"), "excludelistupdate", "/scratch")
    session.append(("category", "default"), "excludelistgrab", "/scratch")
    role = session.add(("category", "default", "roles"), "generic::containerd")
    await commit_session(server.head, session)
    del role
    excludes = desired(server.head.tree, "node001").excludes
    assert excludes["update"][:2] == ("+ /var/log/keep", "/scratch"), "the order of a list counts"
    assert "/var/lib/containerd" in excludes["update"] and excludes["grab"][0] == "/scratch"


# Requests


async def test_an_image_without_marker_reaches_no_node(server: Served, client: HeadClient) -> None:
    with pytest.raises(errors.Invalid, match=r"default-image cannot be used: its folder has no \.bedplate-image"):
        await client.ask_errand(["node001"], "imageupdate", transfer=WRITE)
    assert await client.errands() == []
    await client.act_on_image("default-image", ImageAction(action="adopt"))
    (asked,) = await client.ask_errand(["node001"], "imageupdate", transfer=WRITE)
    assert (asked.image, asked.mode, asked.write, asked.delete) == ("default-image", "update", True, True)
    assert await client.ask_errand(["node001"], "imageupdate", transfer=WRITE) == [asked]
    (trial,) = await client.ask_errand(["node001"], "imageupdate")
    assert trial.id != asked.id and not trial.write
    wanted = await client.desired("node001")
    assert wanted is not None and {errand.id for errand in wanted.state.errands} == {asked.id, trial.id}


async def test_updates_share_an_image_and_a_grab_has_it_alone(
    server: Served, client: HeadClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.service.fleet is not None
    monkeypatch.setattr(server.service.fleet.errands, "_clock", ManualClock())
    await client.act_on_image("default-image", ImageAction(action="adopt"))
    (first,) = await client.ask_errand(["node001"], "imageupdate", transfer=WRITE)
    await client.ask_errand(["node002"], "imageupdate", transfer=WRITE)
    with pytest.raises(errors.Conflict, match="default-image is being copied to node00"):
        await client.ask_errand(["node001"], "grabimage", transfer=WRITE)
    assert await client.ask_errand(["node001"], "grabimage"), "a trial only reads"
    async with server.client("node001") as node:
        await node.report("node001", errands=[ErrandTold(id=first.id, state="accepted", text="12%")])
        with pytest.raises(errors.Conflict, match=r"node001 is at imageupdate of default-image \(12%\)"):
            await client.ask_errand(["node001"], "imageupdate", transfer=WRITE)
        (state,) = await client.nodes(["node001"])
        assert state.image == "default-image: 12%"
        before = len(server.notices.latest(100))
        await node.report("node001", errands=[ErrandTold(id=first.id, state="accepted", text="57%")])
        assert len(server.notices.latest(100)) == before, "how far it is makes no notice"
        (known,) = [errand for errand in await client.errands(["node001"]) if errand.id == first.id]
        assert known.text == "12%", "nor is it written down each time that a node says something"
        await node.report(
            "node001", errands=[ErrandTold(id=first.id, state="done", text="3 changed", lines=["change /a"])]
        )
    (known,) = [errand for errand in await client.errands(["node001"]) if errand.id == first.id]
    assert (known.state, known.text, known.lines) == ("done", "3 changed", ["change /a"])


async def test_who_may_do_what_with_trees(server: Served) -> None:
    async with server.client("olga") as olga, server.client("arno") as arno, server.client("node001") as node:
        for other in (olga, arno, node):
            with pytest.raises(errors.Denied):
                await other.act_on_image("default-image", ImageAction(action="adopt"))
        assert [item.name for item in (await arno.images()).items] == ["default-image", "my-new-image"]
        with pytest.raises(errors.Denied):
            await node.images()


async def test_an_image_that_nodes_have_is_not_removed(server: Served, client: HeadClient) -> None:
    await client.act_on_image("default-image", ImageAction(action="adopt"))
    with pytest.raises(errors.Conflict, match=r"default-image is the image of node001"):
        await client.act_on_image("default-image", ImageAction(action="remove"))
    result = await client.act_on_image("my-new-image", ImageAction(action="copy", source="default-image"))
    assert "was copied to" in result.text
    assert "was removed" in (await client.act_on_image("my-new-image", ImageAction(action="remove"))).text


async def test_a_confirmation_names_nodes_that_are_meant(server: Served, client: HeadClient) -> None:
    await client.act_on_image("default-image", ImageAction(action="adopt"))
    with pytest.raises(errors.Invalid, match="node002 was confirmed, and is not meant"):
        full = Transfer(write=True, full=True, confirm=["node001", "node002"])
        await client.ask_errand(["node001"], "imageupdate", transfer=full)
    with pytest.raises(errors.Invalid, match="grabbed from one node"):
        await client.ask_errand(["node001", "node002"], "grabimage")
    with pytest.raises(errors.Invalid, match="reboot takes no transfer"):
        await client.ask_errand(["node001"], "reboot", transfer=Transfer())


@pytest.mark.parametrize(
    ("install", "once", "is_data", "expected"),
    [
        ("AUTO", "", "no", ("sync", True, False)),
        ("FULL", "", "no", ("full", True, True)),
        ("FULL", "", "yes", ("sync", False, False)),
        ("AUTO", "", "yes", ("sync", False, False)),
        ("NOSYNC", "", "no", None),
        ("AUTO", "NOSYNC", "no", None),
        ("NOSYNC", "FULL", "no", ("full", True, True)),
    ],
)
async def test_item_173_what_a_start_of_the_machine_does(
    server: Served, client: HeadClient, install: str, once: str, is_data: str, expected: tuple[str, bool, bool] | None
) -> None:
    await client.act_on_image("default-image", ImageAction(action="adopt"))
    session = server.head.session()
    session.set(("device", "node001"), "installmode", install)
    if once:
        session.set(("device", "node001"), "nextinstallmode", once)
    session.set(("device", "node001"), "datanode", is_data)
    await commit_session(server.head, session)
    async with server.client("node001") as node:
        await node.report("node001", booted=True)
    found = [(errand.mode, errand.delete, errand.confirmed) for errand in await client.errands(["node001"])]
    assert found == ([] if expected is None else [expected])
    assert "next_install_mode" not in server.head.tree.get(("device", "node001")).values, "it is cleared"


async def test_item_89_a_member_of_etcd_is_a_data_node_without_anybody_saying_so(
    server: Served, client: HeadClient
) -> None:
    await client.act_on_image("default-image", ImageAction(action="adopt"))
    session = server.head.session()
    session.add(("etcd",), "kube-x")
    session.set(("etcd", "kube-x"), "authority", "generate")
    session.add(("device", "node001", "roles"), "etcd::host")
    session.set(("device", "node001", "roles", "Etcd::Host"), "etcdcluster", "kube-x")
    session.set(("device", "node001"), "installmode", "FULL")
    await commit_session(server.head, session)
    tree = server.head.tree
    with pytest.raises(errors.Invalid, match="a data node: a full installation would wipe its data"):
        decide(tree, "node001", "imageupdate", Transfer(write=True, full=True))
    assert not decide(tree, "node001", "imageupdate", WRITE).is_deleting
    async with server.client("node001") as node:
        await node.report("node001", booted=True)
    (errand,) = await client.errands(["node001"])
    assert (errand.mode, errand.delete, errand.confirmed) == ("sync", False, False)
    assert any("is a data node: it is not wiped (FULL)" in notice.text for notice in server.notices.latest(100))


async def test_a_start_of_a_machine_whose_image_has_no_tree_changes_nothing(server: Served, client: HeadClient) -> None:
    async with server.client("node001") as node:
        await node.report("node001", booted=True)
    assert await client.errands() == []


async def test_a_transfer_that_no_longer_tells_anything_is_given_up(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    grow(tmp_path / "images" / "default-image", {"/etc/os-release": "ID=test"})
    async with served(tmp_path, tree=bare(), clock=clock) as server, server.client() as client:
        await client.act_on_image("default-image", ImageAction(action="adopt"))
        (asked,) = await client.ask_errand(["node001"], "imageupdate", transfer=WRITE)
        fleet = server.service.fleet
        assert fleet is not None
        async with server.client("node001") as node:
            for text in ("waits for the head", "5%", "5%"):
                await node.report("node001", errands=[ErrandTold(id=asked.id, state="accepted", text=text)])
                clock.jump(3000)
                await fleet.errands.lapse()
                assert (await client.errands())[0].state == "accepted", "it was heard of within the hour"
        clock.jump(3000)
        await fleet.errands.lapse()
        assert (await client.errands())[0].state == "expired"
        assert fleet.errands.transfers() == []
