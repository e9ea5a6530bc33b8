"""Where one stands after a line, what is kept apart, and what the shell asks of its machine."""

from __future__ import annotations

import pytest
from tests.ui.transcripts.driving import Desk

from bedplate.head.policy import Identity
from bedplate.head.service import Head
from bedplate.ui.cmsh.machine import Host
from bedplate.ui.cmsh.shell import Shell
from bedplate.ui.local import LocalBackend


@pytest.mark.parametrize(
    ("line", "prompt"),
    [
        ("category list", "[basecm10]% "),
        ("category get default softwareimage", "[basecm10]% "),
        ("category set default notes x", "[basecm10]% "),
        ("category use default", "[basecm10->category[default]]% "),
        ("kubernetes", "[basecm10->kubernetes[default]]% "),
        ("kubernetes get version", "[basecm10]% "),
        ("kubernetes appgroups", "[basecm10->kubernetes[default]->appgroups]% "),
        ("kubernetes appgroups list", "[basecm10]% "),
        ("kubernetes appgroups use system", "[basecm10->kubernetes[default]->appgroups[system]]% "),
        (
            "kubernetes; appgroups; applications system",
            "[basecm10->kubernetes[default]->appgroups[system]->applications]% ",
        ),
        ("kubernetes; appgroups; applications system list", "[basecm10->kubernetes[default]->appgroups]% "),
        ("device use master", "[basecm10->device[basecm10]]% "),
        ("device use node001; use node002", "[basecm10->device[node002]]% "),
        ("device use node001; softwareimage", "[basecm10->softwareimage]% "),
        ("DEVICE use node001; /", "[basecm10]% "),
        ("..; ..", "[basecm10]% "),
    ],
)
async def test_where_a_line_leaves_one(desk: Desk, line: str, prompt: str) -> None:
    await desk.do(line)
    assert desk.prompt == prompt


async def test_a_failure_behind_a_modes_name_leaves_one_where_one_was(desk: Desk) -> None:
    await desk.do("kubernetes")
    await desk.fails("device frobnicate")
    await desk.fails("device get nobody ip")
    assert desk.prompt == "[basecm10->kubernetes[default]]% "


@pytest.mark.parametrize(
    ("line", "prompt"),
    [
        ("use nodeTYPO", "[basecm10->device]% "),
        ("device use nodeTYPO", "[basecm10->device]% "),
        ("add physicalnode node001", "[basecm10->device]% "),
        ("add nonsense x", "[basecm10->device]% "),
        ("clone node002", "[basecm10->device]% "),
        ("clone nodeTYPO node777", "[basecm10->device]% "),
        ("assign docker::host", "[basecm10->device]% "),
        ("roles; assign nonsense", "[basecm10->device[node001]->roles]% "),
        ("kubernetes use nothing", "[basecm10->kubernetes]% "),
        ("category use nothing", "[basecm10->category]% "),
        ("category roles use nothing", "[basecm10->category]% "),
        ("categroy use default", "[basecm10->device]% "),
        ("use", "[basecm10->device]% "),
    ],
)
async def test_a_selection_that_fails_leaves_nothing_selected(desk: Desk, line: str, prompt: str) -> None:
    await desk.do("device use node001")
    await desk.fails(line)
    assert desk.prompt == prompt
    await desk.fails("set notes x")
    assert not desk.shell.left()


@pytest.mark.parametrize("end", ["", "; refresh", "; category refresh"])
async def test_a_commit_in_the_line_of_a_failure_is_refused(desk: Desk, site_head: Head, end: str) -> None:
    before = site_head.revision
    said = await desk.fails(f"category use default; set notes x; get nothing; get more{end}; commit")
    assert "2 commands have failed since the last commit" in said.err
    assert "--force" in said.err
    assert site_head.revision == before
    assert desk.shell.left() == ([] if end else ["category[default]"])


async def test_a_commit_after_a_failure_can_be_forced_or_started_anew(desk: Desk, site_head: Head) -> None:
    assert (await desk.type("category use default; get nothing; set notes x; commit --force; get notes")).out == "x\n"
    assert (await desk.type("get nothing; /; revert; category set default notes y; commit")).code == 1
    assert site_head.tree.get(("category", "default")).values["notes"] == "y"
    await desk.fails("category set default notes z; get nothing")
    await desk.do("commit")
    assert site_head.tree.get(("category", "default")).values["notes"] == "z", "who types has seen the failure"


async def test_a_commit_that_failed_can_be_made_again_in_the_same_script(desk: Desk, site_head: Head) -> None:
    lines = "category use default; set softwareimage nowhere; commit; set softwareimage my-new-image; commit"
    said = await desk.type(lines)
    assert (said.code, said.err.count("error:")) == (1, 1)
    assert site_head.tree.get(("category", "default")).values["software_image"] == "my-new-image"


async def test_a_failure_in_a_foreach_counts_once(desk: Desk) -> None:
    said = await desk.fails("device foreach node00[1-2] (set notes x; get nothing); commit")
    assert "2 commands have failed" in said.err


async def test_a_shell_that_quits_ends_at_the_first_failure(site_head: Head) -> None:
    said: list[str] = []
    shell = Shell(
        LocalBackend(site_head, name="basecm10", identity=Identity.local("a")), said.append, said.append, quits=True
    )
    assert await shell.run_line("category use default; plan; set notes x; plan") == 0
    assert await shell.run_line("device foreach * (get nothing); commit") == 1
    assert shell.is_over and shell.exit_code == 1
    assert sum(text.startswith("error:") for text in said) == 1


async def test_an_indexed_object_stays_selected_when_a_commit_counts_anew(desk: Desk) -> None:
    await desk.do("device use master", "roles use firewall", "openports", "remove 0", "add ACCEPT net 443 tcp fw")
    assert desk.prompt.endswith("->openports*[2]]% ")
    await desk.do("commit")
    assert desk.prompt.endswith("->openports[1]]% ")
    assert await desk.do("get port") == "443\n"


async def test_what_the_editor_saves_is_staged_as_it_is_and_nothing_when_it_saved_nothing_new(desk: Desk) -> None:
    text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n\n"
    desk.edits = [text, text]
    await desk.do("kubernetes", "appgroups use system", "applications use cni", "set config")
    assert await desk.do("get config") == text
    await desk.do("commit", "set config")
    assert desk.edited == ["", text]
    assert not desk.shell.left()


async def test_an_overridden_service_keeps_only_what_was_set(desk: Desk, site_head: Head) -> None:
    await desk.do("category use default", "roles", "assign docker::host", "/", "commit")
    await desk.do("device use node004", "services set docker autostart no", "commit")
    assert site_head.tree.get(("device", "node004", "services", "docker")).values == {"autostart": False}


async def test_a_secret_that_was_not_set_is_no_text_in_a_diff(desk: Desk) -> None:
    await desk.do("kubernetes use default", "clone other", "..", "commit", "set other kubecakey abc")
    assert (await desk.table("diff")).rows == [["kubernetes[other]", "kubecakey", "< not set >", "*****"]]


async def test_output_of_a_filtered_command_goes_to_the_filter_and_errors_do_not(site_head: Head) -> None:
    asked: list[tuple[str, str | None]] = []
    out: list[str] = []
    err: list[str] = []

    async def run(command: str, text: str | None) -> tuple[int, str]:
        asked.append((command, text))
        return 1 if command == "false" else 0, "filtered\n"

    shell = Shell(
        LocalBackend(site_head, name="basecm10", identity=Identity.local("a")),
        out.append,
        err.append,
        host=Host(run=run),
    )
    assert await shell.run_line("category get default softwareimage | tr a b") == 0
    assert asked == [("tr a b", "default-image\n")]
    assert out == ["filtered\n"]
    assert await shell.run_line("category get default softwareimage | false") == 1
    assert await shell.run_line("category get default nothing | cat") == 1
    assert len(asked) == 2 and "nothing" in err[-1], "a failed command is not filtered"
    assert await shell.run_line("!date; get x; ! echo 'a;b' | cat") == 2
    assert asked[2:] == [("date", None), ("echo 'a;b' | cat", None)]


async def test_the_worst_exit_code_counts_and_all_commands_run(desk: Desk) -> None:
    await desk.do("category set default softwareimage my-new-image")
    assert (await desk.type("plan; category list")).code == 3
    assert (await desk.type("plan; frobnicate; set")).code == 1
    assert (await desk.type("plan; set; category use default")).code == 2
    assert desk.prompt == "[basecm10->category*[default*]]% "


async def test_nothing_runs_after_quit(desk: Desk) -> None:
    said = await desk.type("quit; category list")
    assert (said.out, desk.shell.is_over) == ("", True)


async def test_hints_are_for_those_who_sit_there(site_head: Head) -> None:
    lines = "category add spare; services list; set softwareimage nowhere; kubernetes; get version"
    for interactive in (True, False):
        err: list[str] = []
        backend = LocalBackend(site_head, name="basecm10", identity=Identity.local("a"))
        shell = Shell(backend, lambda text: None, err.append, interactive=interactive)
        assert await shell.run_line(lines) == 0
        said = "".join(err)
        for hint in ("no service yet", "nowhere"):
            assert said.count(hint) == (1 if interactive else 0), said
