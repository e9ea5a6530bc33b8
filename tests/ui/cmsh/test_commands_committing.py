"""commit, refresh, revert, diff, undo, history, audit, quit: revisions as the shell tells of them."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from tests.ui.transcripts.driving import Desk

from bedplate.api.headapi import RevisionProgress
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.policy import Identity
from bedplate.head.service import Head
from bedplate.ui.cmsh.shell import Shell
from bedplate.ui.local import LocalBackend


async def test_a_commit_takes_what_is_staged_below_the_place_alone(desk: Desk, site_head: Head) -> None:
    await desk.do("category set default notes x", "device set node001 notes y", "category use default", "commit")
    assert desk.shell.left() == ["device[node001]"]
    assert site_head.tree.get(("category", "default")).values["notes"] == "x"
    said = await desk.type("commit")
    assert (said.code, said.out) == (0, "")
    assert "device[node001]" in said.err
    assert await desk.do("/", "commit") == "Successfully committed 1 Devices\n"
    assert not desk.shell.left()


async def test_a_message_is_in_the_history(desk: Desk) -> None:
    await desk.do("category set default notes x", "commit -m 'for a reason'")
    newest = (await desk.table("history -n 1")).rows[0]
    assert newest[2:] == ["alice", "category[default]", "for a reason"]
    assert json.loads(await desk.do("history -n 1 -d {}"))[0]["Time"].endswith("Z")


async def test_a_history_can_be_that_of_one_object(desk: Desk) -> None:
    await desk.do("category set default notes x", "commit", "device set node001 notes y", "commit")
    assert (await desk.table("history device/node001")).column("Summary")[0] == "device[node001] notes"
    assert (await desk.table("history device[node001]")).rows == (await desk.table("history device/node001")).rows
    await desk.do("device use node001")
    assert (await desk.table("history .")).rows == (await desk.table("history device/node001")).rows
    assert (await desk.table("history -n 1 category")).column("Objects") == ["category[default]"]
    assert (await desk.fails("/; history nothing")).code == 1
    assert (await desk.fails("history -n many")).code == 2


async def test_a_dry_run_shows_the_changes_and_makes_none(desk: Desk, site_head: Head) -> None:
    before = site_head.revision
    await desk.do("category set default notes x")
    assert (await desk.table("commit --dry-run")).rows == [["category[default]", "notes", "", "x"]]
    assert site_head.revision == before
    assert desk.shell.left() == ["category[default]"]
    await desk.do("category set default softwareimage nowhere")
    assert "nowhere" in (await desk.fails("commit --dry-run")).err


async def test_refresh_drops_one_object_and_revert_all(desk: Desk) -> None:
    await desk.do("category set default notes x", "device set node001 notes y", "kubernetes set notes z")
    await desk.do("category use default", "refresh")
    assert desk.shell.left() == ["device[node001]", "kubernetes[default]"]
    await desk.do("device", "refresh")
    assert desk.shell.left() == ["kubernetes[default]"]
    await desk.do("category add gone", "set notes a", "revert")
    assert not desk.shell.left()
    assert desk.prompt == "[basecm10->category]% "


async def test_a_stale_commit_names_the_other_and_both_ways_out(desk: Desk, other: Desk) -> None:
    await desk.do("category set default notes mine")
    await other.do("category set default notes theirs", "commit")
    said = await desk.fails("commit")
    assert "bob" in said.err and "refresh" in said.err and "--force" in said.err
    assert desk.shell.left() == ["category[default]"]
    await desk.do("commit --force")
    assert await other.do("category get default notes") == "mine\n"


async def test_others_commits_are_seen_and_staged_changes_kept(desk: Desk, other: Desk) -> None:
    await other.do("category", "add spare", "commit")
    await desk.do("category set default notes mine", "category use spare")
    await other.do("..", "remove spare", "commit", "add gpu", "commit")
    assert desk.prompt == "[basecm10->category*]% "
    assert "gpu" in (await desk.table("category list")).column("Name (key)")
    assert desk.shell.left() == ["category[default]"]


async def test_a_diff_shows_old_and_new_of_what_is_staged(desk: Desk) -> None:
    await desk.do(
        "configurationoverlay use kube-default-master", "set priority 600", "roles use kubelet", "set maxpods 50"
    )
    await desk.do("kubernetes set -e flag on", "kubernetes set kubecakey other")
    rows = (await desk.table("diff")).rows
    assert ["configurationoverlay[kube-default-master]", "priority", "510", "600"] in rows
    assert ["configurationoverlay[kube-default-master]->roles[kubelet]", "maxpods", "110", "50"] in rows
    assert ["kubernetes[default]", "flag", "", "on"] in rows
    assert ["kubernetes[default]", "kubecakey", "*****", "*****"] in rows


async def test_a_diff_of_a_list_without_names_tells_what_came_and_went(desk: Desk) -> None:
    await desk.do("device use master", "roles use firewall", "openports", "remove 0", "add ACCEPT net 443 tcp fw")
    rows = (await desk.table("diff -v")).rows
    where = "device[basecm10]->roles[firewall]->openports"
    assert [where, "0", "ACCEPT net 30080 fw TCP 0.0.0.0/0 Kubernetes 'default' Ingress HTTP", "<removed>"] in rows
    assert [where, "1", "", "ACCEPT net 443 fw TCP 0.0.0.0/0"] in rows
    assert len(rows) == 2


async def test_a_verbose_diff_shows_files_line_by_line(desk: Desk) -> None:
    begin = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cni}\n"
    desk.edits = [f"{begin}data: {{a: one}}\n", f"{begin}data: {{a: two}}\n"]
    await desk.do("kubernetes", "appgroups use system", "applications use cni", "set config", "commit", "set config")
    out = await desk.do("diff -v")
    assert "-data: {a: one}" in out.splitlines() and "+data: {a: two}" in out.splitlines()


async def test_a_diff_of_revisions(desk: Desk, site_head: Head) -> None:
    first = site_head.revision
    await desk.do("category set default notes one", "commit", "category set default notes two", "commit")
    assert (await desk.table(f"diff {first + 2}")).rows == [["category[default]", "notes", "one", "two"]]
    assert (await desk.table(f"diff {first} {first + 2}")).rows == [["category[default]", "notes", "", "two"]]
    assert (await desk.table(f"diff {first + 2} {first + 1}")).rows == [["category[default]", "notes", "two", "one"]]
    assert (await desk.fails("diff 9999")).code == 1
    assert (await desk.fails("diff x")).code == 2


async def test_undo_is_staged_and_the_last_commits_can_be_undone_one_by_one(desk: Desk, site_head: Head) -> None:
    start, before = site_head.revision, site_head.tree
    for text in ("one", "two", "three"):
        await desk.do(f"category set default notes {text}", "commit")
    await desk.do("device use node001")
    for number in (start + 3, start + 2, start + 1):
        await desk.do(f"undo {number}")
        assert desk.shell.left() == ["category[default]"]
        await desk.do("commit")
        assert not desk.shell.left()
    assert site_head.tree == before
    assert (await desk.table("history -n 1")).column("Summary") == [f"undo of revision {start + 1}"]
    assert f"revision {start + 6}" in (await desk.fails(f"undo {start + 3}")).err


async def test_undo_names_what_stands_in_its_way_unless_forced(desk: Desk, other: Desk, site_head: Head) -> None:
    number = site_head.revision + 1
    await desk.do("category set default notes one", "commit")
    await other.do("category set default notes two", "commit")
    said = await desk.fails(f"undo {number}")
    assert f"revision {number + 1}" in said.err and "bob" in said.err
    await desk.do(f"undo --force {number}", "commit")
    assert await desk.do("category get default notes") == "\n"
    assert (await desk.fails("undo 9999")).code == 1


async def test_an_undo_with_something_else_is_an_ordinary_commit(desk: Desk, site_head: Head) -> None:
    number = site_head.revision + 1
    await desk.do("category set default notes one", "commit", f"undo {number}", "device set node001 notes more")
    await desk.do("/", "commit")
    assert (await site_head.read(number + 1)).undoes == 0


async def test_a_secret_can_be_undone(desk: Desk, site_head: Head) -> None:
    number = site_head.revision + 1
    await desk.do("kubernetes set kubecakey other", "commit", f"undo {number}", "commit")
    held = site_head.tree.get(("kubernetes", "default")).values["kube_ca_key"]
    assert held.reveal() == "sesame-three"  # type: ignore[union-attr]


async def test_item_222_the_audit_tells_who_changed_which_parameter_when(desk: Desk, other: Desk) -> None:
    await desk.do("category set default notes one", "commit")
    await other.do("category set default notes two", "commit")
    rows = (await desk.table("audit -n 2 category/default")).rows
    assert [row[2:] for row in rows] == [
        ["bob", "category[default]", "notes", "one", "two"],
        ["alice", "category[default]", "notes", "", "one"],
    ]


async def test_the_audit_of_a_selected_object_is_of_that_object(desk: Desk) -> None:
    await desk.do("category set default notes one", "device set node001 notes two", "/", "commit")
    await desk.do("device use node001")
    assert next(row[3] for row in (await desk.table("audit -n 2")).rows) == "device[node001]"
    assert all(row[3].startswith("device[node001]") for row in (await desk.table("audit -n 50")).rows)
    await desk.do("/")
    assert any(row[3].startswith("category") for row in (await desk.table("audit -n 50")).rows)


async def test_somebody_at_a_terminal_is_greeted_and_told_the_revision_of_a_commit(site_head: Head) -> None:
    said: list[str] = []
    backend = LocalBackend(site_head, name="basecm10", identity=Identity.local("alice"))
    shell = Shell(backend, said.append, said.append, interactive=True)
    before = site_head.revision
    assert f" on basecm10, revision {before}: help lists the commands" in shell.greeting
    await shell.run_line("category use default; set notes x; commit")
    assert said[-1] == f"revision {before + 1}; undo {before + 1} stages its reverse\n"
    quiet = Shell(backend, said.append, said.append)
    said.clear()
    await quiet.run_line("category use default; set notes y; commit")
    assert said == []


async def test_somebody_at_a_terminal_is_asked_twice_before_changes_are_lost(site_head: Head) -> None:
    said: list[str] = []
    backend = LocalBackend(site_head, name="basecm10", identity=Identity.local("alice"))
    shell = Shell(backend, said.append, said.append, interactive=True)
    await shell.run_line("category set default notes x")
    await shell.run_line("quit")
    assert not shell.is_over
    assert "category[default]" in said[-1]
    await shell.run_line("category set default notes y")
    await shell.run_line("quit")
    assert not shell.is_over, "what is staged is not what was warned of"
    await shell.run_line("quit")
    assert shell.is_over
    count = len(said)
    shell.finish()
    assert len(said) == count, "it was told already"


async def test_exit_goes_up_and_leaves_at_the_top(desk: Desk) -> None:
    await desk.do("category use default", "exit")
    assert desk.prompt == "[basecm10->category]% "
    await desk.do("exit", "exit")
    assert desk.shell.is_over


async def test_a_history_of_an_object_is_found_by_its_name_alone(desk: Desk) -> None:
    await desk.do("device set node001 notes x", "device commit", "/")
    expected = (await desk.table("history device/node001")).rows
    for line in ("history node001", "category; history node001", "audit node001; history node001"):
        assert (await desk.table(line.rpartition("; ")[2])).rows == expected
        await desk.do(line, "/")
    await desk.do("category add node001", "commit", "/")
    assert "category/node001" in (await desk.fails("history node001")).err
    assert "nowhere" in (await desk.fails("history nowhere")).err


async def test_counts_of_categories_are_words(desk: Desk) -> None:
    assert await desk.do("category; add a; ..; commit") == "Successfully committed 1 Category\n"
    assert "2 Categories" in await desk.do("category; remove a; set default notes x; add b; ..; commit")


class Reporting(LocalBackend):
    """A backend whose nodes report one after the other, each time somebody looks; `state` is that of those behind."""

    def __init__(self, head: Head, clock: ManualClock, **reports: int) -> None:
        super().__init__(head, name="basecm10", identity=Identity.local("alice"))
        self.reports = reports
        self.clock = clock
        self.asked = 0
        self.state = "pending"
        self.away = range(0)
        """Which questions nobody answers."""

    async def progress(self, number: int) -> RevisionProgress:
        self.asked += 1
        if self.asked in self.away:
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(self.clock.advance(1.0)))
            raise errors.Unavailable("connection refused")
        if self.asked == 3:
            self.reports = dict.fromkeys(self.reports, self.revision)
        nodes = (await super().progress(number)).nodes
        # Whoever asked sleeps by the time the clock moves on: nothing is waited for in between.
        asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(self.clock.advance(1.0)))
        left = [
            msgspec.structs.replace(node, state=self.state if node.node in self.reports else "UNKNOWN")
            for node in nodes
            if self.reports.get(node.node, 0) < number
        ]
        is_settled = not any(node.state in ("pending", "held") for node in left)
        return RevisionProgress(
            revision=number, total=len(nodes), applied=len(nodes) - len(left), is_settled=is_settled, nodes=left
        )


async def test_a_commit_can_wait_for_the_nodes_that_report(site_head: Head) -> None:
    said: list[str] = []
    clock = ManualClock()
    backend = Reporting(site_head, clock, node001=1, node002=1)
    shell = Shell(backend, said.append, said.append, clock=clock)
    assert await shell.run_line("category use default; set softwareimage my-new-image; commit --wait") == 0
    assert backend.asked == 3
    *counts, note = said
    assert counts == [
        "revision 2: applied on 0 of 6 nodes, 2 pending, 4 UNKNOWN\n",
        "revision 2: applied on 2 of 6 nodes, 4 UNKNOWN\n",
    ]
    assert "4 of 6 nodes have not reported a revision" in note


@pytest.mark.parametrize("state", ["failed", "DOWN"])
async def test_a_commit_that_nodes_fail_is_a_failure_once_no_node_is_left_to_wait_for(
    site_head: Head, state: str
) -> None:
    said: list[str] = []
    clock = ManualClock()
    backend = Reporting(site_head, clock, node001=1, node002=9)
    backend.state = state
    shell = Shell(backend, said.append, said.append, clock=clock)
    assert await shell.run_line("category use default; set softwareimage my-new-image; commit --wait") == 1
    assert f"node001: {state}\n" in said and not shell.left()


async def test_item_216_a_commit_goes_on_waiting_while_the_head_is_restarted(site_head: Head) -> None:
    said: list[str] = []
    clock = ManualClock()
    backend = Reporting(site_head, clock, node001=1, node002=1)
    backend.away = range(1, 3)
    shell = Shell(backend, said.append, said.append, clock=clock)
    assert await shell.run_line("category use default; set softwareimage my-new-image; commit --wait") == 0
    assert said[0] == "note: revision 2 is committed; the head does not respond, waiting for it\n"
    assert said[1] == "revision 2: applied on 2 of 6 nodes, 4 UNKNOWN\n"
    assert not [line for line in said[1:] if "does not respond" in line], "it is told once"


async def test_item_216_a_head_that_stays_away_ends_the_wait_and_the_commit_is_said_to_be_made(site_head: Head) -> None:
    said: list[str] = []
    clock = ManualClock()
    backend = Reporting(site_head, clock, node001=1)
    backend.away = range(1, 100)
    shell = Shell(backend, said.append, said.append, clock=clock)
    line = "category use default; set softwareimage my-new-image; commit --wait --timeout 5"
    assert await shell.run_line(line) == 1
    assert "revision 2 is committed, but the head does not respond: connection refused" in said[-1]
    assert "do not commit again" in said[-1]
    assert not shell.left()


async def test_a_commit_does_not_wait_for_ever(site_head: Head) -> None:
    said: list[str] = []
    clock = ManualClock()
    backend = Reporting(site_head, clock, node001=1)
    backend.asked = 100
    shell = Shell(backend, said.append, said.append, clock=clock)
    line = "category use default; set softwareimage my-new-image; commit --wait --timeout 5"
    assert await shell.run_line(line) == 1
    assert "node001" in said[-1] and "committed" in said[-1]
    assert not shell.left()
