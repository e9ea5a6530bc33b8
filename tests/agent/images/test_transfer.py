"""Images for real: rsync on both sides, its bytes over the agent's own connection, in sandboxes."""

from __future__ import annotations

import asyncio
import os
import pathlib
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from tests.agent.imaging import agent, contents, grow, over, transfer
from tests.agent.machines import Machine
from tests.head.committing import commit_session
from tests.ui.rest.serving import Served
from tests.waiting import until

from bedplate.agent import images
from bedplate.agent.power import boot_id
from bedplate.agent.state import Errand
from bedplate.api.headapi import ErrandTold, ImageAction, Transfer
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.images import serving

pytestmark = pytest.mark.external

IMAGE = {
    "/etc/os-release": "ID=test\n",
    "/usr/bin/tool": "#!/bin/sh\necho two\n",
    "/bin": "-> usr/bin",
    "/etc/mtab": "-> /proc/self/mounts",
    "/etc/hostname": "image",
    "/var/log/image.log": "of the image",
    "/proc/1": "never copied",
    "/var/lib/bedplate-agent/held.json": "never copied",
}
NODE = {
    "/usr/bin/tool": "#!/bin/sh\necho one\n",
    "/usr/bin/old": "goes",
    "/etc/hostname": "node001",
    "/home/ann/thesis": "stays",
    "/var/log/messages": "stays",
    "/proc/uptime": "stays",
    "/var/lib/containerd/layer": "stays",
}


async def test_item_172_an_update_makes_the_node_what_the_image_is_but_for_the_exclude_lists(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    session = server.head.session()
    session.append(("category", "default"), "excludelistupdate", "/var/lib/containerd")
    await commit_session(server.head, session)
    before = contents(machine.folder)
    async with agent(server, machine, "node001", tmp_path / "token"):
        (trial,) = await transfer(client, ["node001"])
        assert (trial.state, trial.write) == ("done", False)
        assert contents(machine.folder) == before, "a trial changes nothing"
        assert trial.text.startswith("would be ") and "change /usr/bin/tool" in trial.lines
        assert "delete /usr/bin/old" in trial.lines and not any("/home" in line for line in trial.lines)
        (done,) = await transfer(client, ["node001"], write=True)
        assert (done.state, done.text) == ("done", trial.text.removeprefix("would be "))
        now = contents(machine.folder)
        assert now == {
            "/etc/os-release": IMAGE["/etc/os-release"],
            "/usr/bin/tool": IMAGE["/usr/bin/tool"],
            "/bin": IMAGE["/bin"],
            "/etc/mtab": IMAGE["/etc/mtab"],
            **{path: NODE[path] for path in ("/etc/hostname", "/home/ann/thesis", "/var/log/messages", "/proc/uptime")},
            "/var/lib/containerd/layer": "stays",
        }
        (again,) = await transfer(client, ["node001"], write=True)
        assert (again.state, again.text) == ("done", "nothing to change")
    (state,) = await client.nodes(["node001"])
    assert state.image == "default-image: done, nothing to change"
    texts = [notice.text for notice in server.notices.latest(50)]
    assert any(text.endswith(f"(default-image), and has done it: {done.text}") for text in texts)


async def test_a_file_that_changes_within_the_second_of_the_last_update_is_updated_too(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    file, there = tmp_path / "images/default-image" / "etc/os-release", machine.at("/etc/os-release")
    async with agent(server, machine, "node001", tmp_path / "token"):
        await transfer(client, ["node001"], write=True)
        second = file.stat().st_mtime_ns // 10**9 * 10**9
        for number, text in enumerate(("ID=same\n", "ID=size\n")):
            file.write_text(text)
            os.utime(file, ns=(second + number, second + number))
            (done,) = await transfer(client, ["node001"], write=True)
            assert (done.text, there.read_text()) == ("1 changed", text)
        there.write_text("ID=node\n")
        os.utime(there, ns=(second + 5, second + 5))
        (grabbed,) = await transfer(client, ["node001"], kind="grabimage", write=True)
        assert grabbed.state == "done", grabbed.text
        assert file.read_text() == "ID=node\n"


async def test_item_175_two_nodes_share_an_image_and_only_the_one_that_is_meant_changes(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    other = Machine(tmp_path / "node002")
    grow(other.folder, NODE, age_s=1000.0)
    before = contents(other.folder)
    async with (
        agent(server, machine, "node001", tmp_path / "token1"),
        agent(server, other, "node002", tmp_path / "token2"),
    ):
        await transfer(client, ["node001"], write=True)
        assert contents(other.folder) == before
        both = await transfer(client, ["node001", "node002"], write=True)
        assert [errand.state for errand in both] == ["done", "done"]
        assert contents(other.folder) == contents(machine.folder) != before


async def test_item_174_the_image_of_the_node_itself_beats_that_of_its_category(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    grow(tmp_path / "images" / "my-new-image", {"/etc/os-release": "ID=new\n"})
    session = server.head.session()
    session.set(("softwareimage", "my-new-image"), "path", "/cm/images/my-new-image")
    session.set(("device", "node001"), "softwareimage", "my-new-image")
    await commit_session(server.head, session)
    await client.act_on_image("my-new-image", ImageAction(action="adopt"))
    async with agent(server, machine, "node001", tmp_path / "token"):
        (own,) = await transfer(client, ["node001"], write=True)
        assert (own.image, machine.at("/etc/os-release").read_text()) == ("my-new-image", "ID=new\n")
        session = server.head.session()
        session.clear(("device", "node001"), "softwareimage")
        await commit_session(server.head, session)
        (shared,) = await transfer(client, ["node001"], write=True)
        assert (shared.image, machine.at("/etc/os-release").read_text()) == ("default-image", "ID=test\n")


async def test_a_grab_replaces_the_image_in_one_step_and_leaves_what_is_the_machines_own(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    image = tmp_path / "images" / "default-image"
    machine.put("/etc/link-target", "x")
    machine.at("/etc/absolute").symlink_to("/etc/link-target")
    machine.at("/etc/up").symlink_to("../../../outside")
    before = contents(image)
    async with agent(server, machine, "node001", tmp_path / "token"):
        (trial,) = await transfer(client, ["node001"], kind="grabimage")
        assert trial.state == "done" and contents(image) == before, "a trial changes nothing"
        assert "create /usr/bin/old" in trial.lines and "delete /etc/os-release" in trial.lines
        (done,) = await transfer(client, ["node001"], kind="grabimage", write=True)
        assert done.state == "done", done.text
    now = contents(image)
    assert now["/usr/bin/tool"] == NODE["/usr/bin/tool"] and now["/usr/bin/old"] == "goes"
    assert now["/etc/absolute"] == "-> /etc/link-target" and now["/etc/up"] == "-> ../../../outside"
    assert now["/etc/hostname"] == "image", "what a grab leaves out stays as it was in the image"
    assert "/etc/os-release" not in now and "/home/ann/thesis" not in now
    await until(lambda: [path.name for path in image.parent.iterdir()] == ["default-image"], "nothing is beside it")
    (state,) = [item for item in (await client.images()).items if item.name == "default-image"]
    assert (state.state, state.generation, state.origin) == ("ready", 2, "grabbed from node001 by admin")


async def test_a_grab_that_is_cut_off_leaves_the_image_as_it_was(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "images" / "default-image"
    before, right = contents(image), images.command
    machine.put("/usr/bin/large", "x" * 400_000)

    def wrong(*args: Any, **more: Any) -> list[str]:
        slow = shlex.join([*right(*args, **more)[:1], "--bwlimit=50", *right(*args, **more)[1:]])
        return ["sh", "-c", f"{slow} & sleep 0.3; kill -9 $!; exit 12"]

    monkeypatch.setattr(images, "command", wrong)
    monkeypatch.setattr(images, "_TRIES", 1)
    async with agent(server, machine, "node001", tmp_path / "token"):
        (failed,) = await transfer(client, ["node001"], kind="grabimage", write=True)
        assert failed.state == "failed" and contents(image) == before
        monkeypatch.setattr(images, "command", right)
        (done,) = await transfer(client, ["node001"], kind="grabimage", write=True)
        assert done.state == "done" and contents(image) != before
    await until(lambda: [path.name for path in image.parent.iterdir()] == ["default-image"])


async def test_a_grab_that_rsync_of_the_head_did_not_finish_is_not_kept(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although all that the node knows of went well."""
    image = tmp_path / "images" / "default-image"
    before, carry = contents(image), serving.Serving.carry

    async def partly(this: serving.Serving, *args: Any) -> int:
        assert await carry(this, *args) == 0
        return 23

    monkeypatch.setattr(serving.Serving, "carry", partly)
    async with agent(server, machine, "node001", tmp_path / "token"):
        (failed,) = await transfer(client, ["node001"], kind="grabimage", write=True)
    assert failed.state == "failed" and "nothing was kept: rsync of the head ended with 23" in failed.text, failed.text
    await until(lambda: [path.name for path in image.parent.iterdir()] == ["default-image"])
    assert contents(image) == before


async def test_an_update_that_an_agent_began_before_it_was_killed_goes_on(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    async with agent(server, machine, "node001", tmp_path / "token"):
        pass
    (asked,) = await client.ask_errand(["node001"], "imageupdate", transfer=Transfer(write=True))
    async with server.client("node001") as node:
        wanted = await node.desired("node001")
        assert wanted is not None
        await node.report("node001", errands=[ErrandTold(id=asked.id, state="accepted")])
    machine.state.save_errand(asked.id, Errand("accepted", asked.kind, boot_id(), work=wanted.state.errands[0]))
    machine.put("/usr/bin/.tool.Xy12ab", "what an rsync leaves that was killed")
    again = Machine(machine.folder)
    async with agent(server, again, "node001", tmp_path / "token"):
        (done,) = await over(client, ["node001"], {asked.id})
    assert done.state == "done" and not machine.at("/usr/bin/.tool.Xy12ab").exists()
    assert machine.at("/usr/bin/tool").read_text() == IMAGE["/usr/bin/tool"]


async def test_item_173_nosync_keeps_the_files_over_a_start_and_the_next_one_syncs(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    session = server.head.session()
    session.set(("device", "node001"), "nextinstallmode", "NOSYNC")
    await commit_session(server.head, session)
    before = contents(machine.folder)

    async def restart() -> None:
        (asked,) = await client.ask_errand(["node001"], "reboot")
        await over(client, ["node001"], {asked.id})

    async with agent(server, machine, "node001", tmp_path / "token"):
        await restart()
        await until(lambda: "next_install_mode" not in server.head.tree.get(("device", "node001")).values)
        assert contents(machine.folder) == before
        await until(lambda: any("(NOSYNC)" in notice.text for notice in server.notices.latest()))
        await restart()
        await until(lambda: machine.at("/etc/os-release").exists())
        known = [errand for errand in await client.errands(["node001"]) if errand.kind == "imageupdate"]
        assert [(errand.mode, errand.by) for errand in known] == [("sync", "its start")]
        await over(client, ["node001"], {known[0].id})
    assert machine.at("/home/ann/thesis").exists() and not machine.at("/usr/bin/old").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda words, root: [*words[:-2], "head::image/../../", words[-1]],
        lambda words, root: [*words[:-2], "head::image/../my-secret-image/", words[-1]],
        lambda words, root: [*words[:-2], "head::other/", words[-1]],
        lambda words, root: [*words[:-2], "--copy-links", words[-2], words[-1]],
        lambda words, root: [*words[:-2], "--copy-unsafe-links", words[-2], words[-1]],
        lambda words, root: [*words[:-2], "--remove-source-files", words[-2], words[-1]],
        lambda words, root: [*words[:-2], words[-1], words[-2]],
        lambda words, root: [*words[:-2], f"--filter=: {root}", words[-2], words[-1]],
        lambda words, root: [*words[:-2], "--iconv=utf-8,utf-16", words[-2], words[-1]],
        lambda words, root: [*words[:-2], "-M--log-file=/tmp/x", words[-2], words[-1]],
        lambda words, root: [*words[:-2], f"-M--files-from={root}", words[-2], words[-1]],
    ],
    ids=["up", "beside", "module", "links", "unsafe links", "remove", "push", "merge", "letters", "log", "list"],
)
async def test_a_hostile_node_reads_nothing_but_its_image_and_writes_nothing(
    server: Served,
    client: HeadClient,
    machine: Machine,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[list[str], str], list[str]],
) -> None:
    """Whatever a node's rsync asks for, the head's is told by the head alone what it serves; options that it does not
    need are refused as such, before anything else could fail."""
    secret = tmp_path / "secret"
    secret.write_text("- the-secret-of-the-head\nsecret words\n")
    image = tmp_path / "images" / "default-image"
    (image / "etc/leak").symlink_to(secret)
    grow(tmp_path / "images" / "my-secret-image", {"/etc/secret": "secret words"})
    before, right = contents(tmp_path / "images"), images.command
    monkeypatch.setattr(images, "command", lambda *args, **more: change(right(*args, **more), str(secret)))
    monkeypatch.setattr(images, "_TRIES", 1)
    said, carry = bytearray(), serving.Serving.carry

    async def overheard(this: serving.Serving, *args: Any) -> int:
        try:
            return await carry(this, *args)
        finally:
            said.extend(this.said)

    monkeypatch.setattr(serving.Serving, "carry", overheard)
    async with agent(server, machine, "node001", tmp_path / "token"):
        (done,) = await transfer(client, ["node001"], write=True)
    assert contents(tmp_path / "images") == before
    options = [word for word in change(["", ""], "") if word.startswith("-") and "--filter" not in word]
    assert not options or b"configured to refuse" in said, said.decode()
    # Above its tree there is nothing for rsync, and a rule that names a file is read by nobody.
    is_harmless = any(word in "".join(change(["", ""], "")) for word in ("image/../../", "--filter"))
    assert is_harmless or done.state == "failed", done.text
    found = "".join(content for path, content in contents(machine.folder).items())
    assert "secret words" not in found and "secret words" not in done.text + "".join(done.lines)


async def test_a_hostile_node_whose_tree_is_grabbed_reads_nothing_of_the_image(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be an image that was made for other nodes: who may write it may not therefore read it."""
    image = tmp_path / "images" / "default-image"
    grow(image, {"/etc/secret": "secret words"})
    before, right = contents(image), images.command

    def pulls(*args: Any, **more: Any) -> list[str]:
        *words, here, there = right(*args, **more)
        return [*words, there, here]

    monkeypatch.setattr(images, "command", pulls)
    monkeypatch.setattr(images, "_TRIES", 1)
    async with agent(server, machine, "node001", tmp_path / "token"):
        (done,) = await transfer(client, ["node001"], kind="grabimage", write=True)
    assert done.state == "failed" and "write only" in done.text, done.text
    assert "/etc/secret" not in contents(machine.folder)
    assert contents(image) == before


@pytest.mark.root
async def test_a_head_and_an_agent_that_are_root_keep_owners_and_stay_in_the_tree(
    server: Served, client: HeadClient, tmp_path: pathlib.Path
) -> None:
    """rsync locks itself into the tree; links that lead out of it are links, and nothing else."""
    fleet = server.service.fleet
    assert fleet is not None
    fleet.imaging.trees.is_root = True
    image, machine = tmp_path / "images" / "default-image", Machine(tmp_path / "node001")
    machine.root.is_privileged = True
    grow(machine.folder, NODE, age_s=1000.0)
    outside = tmp_path / "outside"
    outside.mkdir()
    machine.at("/usr/bin/tool").chmod(0o4755)
    os.chown(machine.at("/usr/bin/old"), 1234, 4321)
    machine.at("/etc/out").symlink_to(outside)
    (image / "etc/out").mkdir()
    grow(image / "etc/out", {"/a": "1"})
    async with agent(server, machine, "node001", tmp_path / "token"):
        (done,) = await transfer(client, ["node001"], kind="grabimage", write=True)
        assert done.state == "done", done.text
        old = (image / "usr/bin/old").lstat()
        assert (old.st_uid, old.st_gid) == (1234, 4321)
        assert (image / "usr/bin/tool").lstat().st_mode & 0o7777 == 0o4755
        assert (image / "etc/out").is_symlink() and not any(outside.iterdir())
        machine.at("/usr/bin/old").unlink()
        machine.at("/etc/out").unlink()
        (done,) = await transfer(client, ["node001"], write=True)
        assert done.state == "done", done.text
    back = machine.at("/usr/bin/old").lstat()
    assert (back.st_uid, back.st_gid) == (1234, 4321) and machine.at("/etc/out").is_symlink()


async def test_a_transfer_that_is_given_up_ends_and_nothing_is_kept(
    server: Served, client: HeadClient, tmp_path: pathlib.Path
) -> None:
    fleet = server.service.fleet
    assert fleet is not None
    before = contents(tmp_path / "images")
    (asked,) = await client.ask_errand(["node001"], "grabimage", transfer=Transfer(write=True))
    async with server.client("node001") as node:
        with pytest.raises(errors.Unavailable, match="it was closed"):
            async with node.transfer_image("node001", asked.id, wait_s=5.0) as duplex:
                assert (await anext(duplex.chunks)).startswith(b"@RSYNCD: ")
                await node.report("node001", errands=[ErrandTold(id=asked.id, state="failed", text="no")])
                async with asyncio.timeout(30):
                    async for _ in duplex.chunks:
                        pass
        with pytest.raises(errors.NotFound):
            async with node.transfer_image("node001", asked.id, wait_s=5.0):
                pass
    await until(lambda: not fleet.imaging.trees.busy)
    assert contents(tmp_path / "images") == before


async def test_a_node_opens_no_transfer_but_its_own(server: Served, client: HeadClient) -> None:
    (asked,) = await client.ask_errand(["node002"], "imageupdate", transfer=Transfer())
    async with server.client("node001") as node:
        for name, id_ in (("node001", asked.id), ("node001", "nothing"), ("node002", asked.id)):
            with pytest.raises((errors.NotFound, errors.Denied)):
                async with node.transfer_image(name, id_, wait_s=5.0):
                    pass
    with pytest.raises(errors.Denied):
        async with client.transfer_image("node002", asked.id, wait_s=5.0):
            pass


async def test_data_nodes_lose_nothing_unless_they_are_named_and_a_full_one_names_every_node(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    session = server.head.session()
    session.set(("device", "node001"), "datanode", "yes")
    await commit_session(server.head, session)
    with pytest.raises(errors.Invalid, match="data node: a full installation would wipe its data"):
        await client.ask_errand(["node001"], "imageupdate", transfer=Transfer(write=True, full=True))
    with pytest.raises(errors.Invalid, match="node002 is wiped by a full installation"):
        await client.ask_errand(["node002"], "imageupdate", transfer=Transfer(write=True, full=True))
    async with agent(server, machine, "node001", tmp_path / "token"):
        (done,) = await transfer(client, ["node001"], write=True)
        assert (done.state, done.delete) == ("done", False)
        assert machine.at("/usr/bin/old").exists() and machine.at("/etc/os-release").exists()
        (done,) = await transfer(client, ["node001"], write=True, confirm=["node001"])
        assert done.state == "done" and not machine.at("/usr/bin/old").exists()
        (done,) = await transfer(client, ["node001"], write=True, full=True, confirm=["node001"])
        assert done.state == "done", done.text
        now = contents(machine.folder)
        assert "/home/ann/thesis" not in now and now["/var/log/image.log"] == "of the image"
        assert now["/etc/hostname"] == "node001" and now["/proc/uptime"] == "stays"


async def test_many_nodes_wait_for_their_turn(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    fleet = server.service.fleet
    assert fleet is not None
    turns = fleet.imaging.transfers._turns
    await turns.acquire()
    await turns.acquire()
    async with agent(server, machine, "node001", tmp_path / "token"):
        (asked,) = await client.ask_errand(["node001"], "imageupdate", transfer=Transfer(write=True))
        await until(lambda: fleet.errands.image("node001") == "default-image: waits for the head")
        with pytest.raises(errors.Conflict, match="default-image is being copied to node001"):
            await client.ask_errand(["node002"], "grabimage", transfer=Transfer(write=True))
        with pytest.raises(errors.Conflict, match="is at imageupdate with node001"):
            await client.act_on_image("default-image", ImageAction(action="remove"))
        turns.release()
        (done,) = await over(client, ["node001"], {asked.id})
        assert done.state == "done"
    turns.release()


async def test_without_rsync_on_the_node_it_is_told_what_to_install(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    async with agent(server, machine, "node001", tmp_path / "token") as running:
        running._errands._images._which = lambda name: None
        (failed,) = await transfer(client, ["node001"], write=True)
        assert failed.state == "failed" and "apt-get install rsync" in failed.text


async def test_without_rsync_on_the_head_it_is_told_what_to_install(
    server: Served, client: HeadClient, machine: Machine, tmp_path: pathlib.Path
) -> None:
    fleet = server.service.fleet
    assert fleet is not None
    fleet.imaging.trees.which = lambda name: None
    async with agent(server, machine, "node001", tmp_path / "token"):
        (failed,) = await transfer(client, ["node001"], write=True)
        assert failed.state == "failed" and "rsync is not installed on the head node" in failed.text
