"""Checklist L, items 219, 220 and 222: what a thousand nodes cost, what errors say, and who changed what."""

from __future__ import annotations

import ast
import json
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.head import sites
from tests.head.committing import commit_session
from tests.ui.transcripts.driving import Desk, opened

import bedplate
from bedplate.head.exchange import export, stage
from bedplate.head.service import Head

SOURCE = Path(bedplate.__file__).parent
ROLE = "configurationoverlay use kube-default-master; roles; use kubelet"
PORTS = "device use master; roles; use firewall; openports"
BACKENDS = "category use default; roles; assign docker::host; storagebackends"

# Where one stands, what is typed, and what the error must name: the object or parameter; every error says what to do.
BAD = [
    ("", "frobnicate", "frobnicate"),
    ("", "use default", "use"),
    ("", "show", "show"),
    ("", "set notes x", "set"),
    ("", "add x", "add"),
    ("", "remove x", "remove"),
    ("", "device use nobody", "nobody"),
    ("", "category show nothing", "nothing"),
    ("", "undo 99", "99"),
    ("", "undo x", "x"),
    ("", "undo", "undo"),
    ("", "diff 99", "99"),
    ("", "diff 1 99", "99"),
    ("", "diff one", "one"),
    ("", "history -n many", "many"),
    ("", "history -x", "-x"),
    ("", "plan --at 99", "99"),
    ("", "plan --at", "--at"),
    ("", "explain", "explain"),
    ("", "export /nowhere/at/all.yaml", "/nowhere/at/all.yaml"),
    ("", "import /nowhere/at/all.yaml", "/nowhere/at/all.yaml"),
    ("", "import {files}/914", "914"),
    ("", "help frobnicate", "frobnicate"),
    ("", "sysinfo", "sysinfo"),
    ("", "imageupdate -w", "imageupdate"),
    ("", "list |", "|"),
    ("", "set notes 'open", "quote"),
    ("", "!", "!"),
    ("", "commit --frob", "--frob"),
    ("", "commit extra words", "extra"),
    ("", "quit now", "now"),
    ("category", "use nothing", "nothing"),
    ("category", "add default", "default"),
    ("category", "add 'two words'", "two words"),
    ("category", "add", "add"),
    ("category", "remove nothing", "nothing"),
    ("category", "set default nothing x", "nothing"),
    ("category", "set nothing notes x", "nothing"),
    ("category", "get", "get"),
    ("category", "list -d", "-d"),
    ("category", "list --frob", "--frob"),
    ("category", "show", "category"),
    ("category", "roles nothing", "nothing"),
    ("category use default", "set", "set"),
    ("category use default", "set notes", "notes"),
    ("category use default", "set softwarimage x", "softwareimage"),
    ("category use default", "set roles x", "roles"),
    ("category use default", "set name other", "rename"),
    ("category use default", "append notes x", "Notes"),
    ("category use default", "clear nothing", "nothing"),
    ("category use default", "get nothing", "nothing"),
    ("category use default", "clone default", "default"),
    ("category use default", "clone", "clone"),
    ("category use default", "removefrom notes x", "Notes"),
    ("category use default", "set -e 'a b' c", "a b"),
    ("category use default; roles", "assign planet::host", "planet::host"),
    ("category use default; roles", "use docker::host", "docker::host"),
    (BACKENDS, "add zfs big", "zfs"),
    (BACKENDS, "add overlay2", "overlay2"),
    (ROLE, "set maxpods 0", "maxpods"),
    (ROLE, "set type other", "Type"),
    (ROLE, "options nothing.yaml set v=1", "nothing.yaml"),
    (ROLE, "options kube-apiserver.yaml frob x", "frob"),
    (ROLE, "options kube-apiserver.yaml clear nothing", "nothing"),
    (PORTS, "add ACCEPT net 99999 tcp fw", "99999"),
    (PORTS, "add LETIN net 80 tcp fw", "LETIN"),
    (PORTS, "add ACCEPT net 80 tcp fw more words", "openports"),
    (PORTS, "remove 7", "7"),
    (PORTS, "use seven", "seven"),
    ("device", "add physicalnode -bad-", "-bad-"),
    ("device", "add robot r2d2", "robot"),
    ("device use node001", "set belongstorole yes", "belongstorole"),
    ("device use node001", "explain /etc/nothing", "/etc/nothing"),
    ("device use node001", "explain --at 99", "99"),
    ("configurationoverlay use kube-default-etcd", "set nodes node00[", "node00["),
    ("kubernetes", "set config", "config"),
    ("kubernetes; appgroups; applications system; use root", "set config /nowhere/x", "/nowhere/x"),
]


@pytest.mark.parametrize(("way", "line", "named"), BAD, ids=[f"{way}: {line}" for way, line, _ in BAD])
async def test_item_220_an_error_names_the_object_and_the_remedy(
    desk: Desk, site_head: Head, way: str, line: str, named: str
) -> None:
    for step in filter(None, way.split("; ")):
        await desk.do(step)
    before, staged = desk.prompt, desk.shell.left()
    said = await desk.fails(line)
    assert said.code in (1, 2)
    assert named.lower() in said.err.lower(), said.err
    assert says_what_to_do(said.err), said.err
    assert (desk.shell.left(), site_head.revision) == (staged, 1), "nothing is lost or changed"
    if not {"use", "add", "assign", "clone"} & set(line.split()):
        assert desk.prompt == before


def says_what_to_do(text: str) -> bool:
    """A remedy stands in parentheses behind the error, or on a line of its own."""
    first, _, rest = text.rstrip().partition("\n")
    return (first.endswith(")") and "(" in first) or bool(rest.strip())


REFUSED = [
    ("category", ["remove default"], "node001"),
    ("softwareimage", ["remove default-image"], "default-image"),
    ("network", ["remove internalnet"], "internalnet"),
    ("etcd", ["remove kube-default"], "kube-default"),
    ("kubernetes", ["set podnetwork nothing"], "nothing"),
    ("device use node001", ["set ip 10.141.0.2"], "10.141.0.2"),
    ("device use master; roles; use firewall; openports; use 0", ["set port ''"], "port"),
]


@pytest.mark.parametrize(("way", "lines", "named"), REFUSED, ids=[row[0] + ": " + row[1][0] for row in REFUSED])
async def test_item_220_a_commit_that_is_refused_names_what_is_wrong_and_keeps_what_is_staged(
    desk: Desk, site_head: Head, way: str, lines: list[str], named: str
) -> None:
    for step in [*way.split("; "), *lines]:
        await desk.do(step)
    staged = desk.shell.left()
    said = await desk.fails("commit")
    assert named in said.err
    assert (desk.shell.left(), site_head.revision) == (staged, 1)


def test_item_220_every_error_the_head_and_the_shell_raise_says_what_to_do() -> None:
    """A hint, the list of what is wrong, or when to try again."""
    named = {"Invalid", "NotFound", "AlreadyExists", "Conflict", "Denied", "Unavailable", "Usage"}
    silent = []
    for part in ("head", "ui/cmsh"):
        for file in sorted((SOURCE / part).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                    continue
                words = {keyword.arg for keyword in node.exc.keywords}
                name = ast.unparse(node.exc.func).rpartition(".")[2]
                if name in named and not words & {"hint", "problems", "retry_after_s"}:
                    silent.append(f"{file.name}:{node.lineno} {ast.unparse(node.exc)[:80]}")
    assert not silent


def calls() -> Any:
    """Counts the Python functions that are called while it is entered."""

    class Counter:
        count = 0

        def __enter__(self) -> Counter:
            sys.setprofile(self._tally)
            return self

        def __exit__(self, *exc: object) -> None:
            sys.setprofile(None)

        def _tally(self, frame: FrameType, event: str, arg: Any) -> None:
            self.count += event == "call"

    return Counter()


@pytest.fixture
async def sizes(tmp_path: Path) -> AsyncIterator[list[Desk]]:
    """Shells over heads with 100 and 1,000 nodes in 20 categories with 20 overlays."""
    async with opened(tmp_path / "few.db") as few, opened(tmp_path / "many.db") as many:
        for head, count in ((few, 100), (many, 1000)):
            session = head.session()
            stage(session, export(sites.large(count)))
            await commit_session(head, session, "setup")
        yield [Desk(few), Desk(many)]


async def cost(desk: Desk, *lines: str) -> int:
    """What the last line costs; it has been typed once before, as in a shell that runs."""
    for line in lines[:-1]:
        await desk.type(line)
    await desk.type(lines[-1])
    with calls() as counter:
        said = await desk.type(lines[-1])
    assert said.code in (0, 3) and not said.err, said
    return int(counter.count)


@pytest.mark.parametrize(
    ("lines", "growth"),
    [
        (("device", "list"), 10),
        (("device", "list -d {}"), 10),
        (("device use node00003", "show"), 1),
        (("device", "explain node00003"), 1),
        (("device use node00003", "set notes x", "plan"), 1),
        (("device use node00003", "get softwareimage"), 1),
        (("configurationoverlay use few", "set priority 700", "plan"), 1),
    ],
    ids=lambda value: "; ".join(value) if isinstance(value, tuple) else f"times {value}",
)
async def test_item_219_a_thousand_nodes_cost_ten_times_a_hundred_at_most(
    sizes: list[Desk], lines: tuple[str, ...], growth: int
) -> None:
    few, many = [await cost(desk, *lines) for desk in sizes]
    assert many <= few * growth * 1.3, f"{few} calls for 100 nodes, {many} for 1,000"


async def test_item_219_a_commit_costs_what_changed_not_what_there_is(sizes: list[Desk]) -> None:
    counts = []
    for desk in sizes:
        await desk.do("device use node00003", "set notes first", "commit", "set notes second")
        with calls() as counter:
            await desk.do("commit")
        counts.append(counter.count)
    assert counts[1] <= counts[0] * 1.3, counts


async def test_item_222_the_audit_tells_who_changed_which_parameter_when(desk: Desk, other: Desk) -> None:
    await desk.do("kubernetes", "set version 1.30.1", "commit -m 'new minor'")
    await other.do("kubernetes", "set version 1.30.2", "set notes patched", "commit")
    rows = json.loads(await desk.do("audit -d {} kubernetes/default"))
    told = [(row["Revision"], row["Author"], row["Parameter"], row["Old"], row["New"]) for row in rows[:3]]
    assert sorted(told) == [
        (2, "alice", "version", "1.27.10-150500.1.1", "1.30.1"),
        (3, "bob", "notes", "", "patched"),
        (3, "bob", "version", "1.30.1", "1.30.2"),
    ]
    assert all(row["Time"] and row["Object"] == "kubernetes[default]" for row in rows[:3])
    revisions = json.loads(await desk.do("history -d {} -n 2"))
    assert [(row["Revision"], row["Author"]) for row in revisions] == [(3, "bob"), (2, "alice")]
    assert "new minor" in revisions[1]["Summary"]


async def test_item_222_the_audit_masks_secrets_and_tells_of_undos(desk: Desk) -> None:
    await desk.do("kubernetes", "set kubecakey 'open sesame'", "commit", "undo 2", "commit")
    out = await desk.do("audit -d {} -n 2")
    assert "sesame" not in out
    assert [(row["Revision"], row["Parameter"], row["New"]) for row in json.loads(out)] == [
        (3, "kubecakey", "*****"),
        (2, "kubecakey", "*****"),
    ]


async def test_item_220_a_refused_command_is_no_line_in_the_log(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await desk.fails("frobnicate")
    assert "Traceback" not in caplog.text
