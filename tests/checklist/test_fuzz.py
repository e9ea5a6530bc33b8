"""Whatever is typed, the shell answers in words: no line breaks it, loses what is staged, or shows a secret."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ui.transcripts.driving import Desk, head_with, sized_files

from bedplate.head.entities import SCHEMA
from bedplate.ui.cmsh.commands import COMMANDS

STAGED, COMMITTED = "hush-this-is-staged", "sesame"
PLANTED = ("device", "node006")
# These drop what is staged on purpose; the rest must keep it.
DROPPING = {"refresh", "revert", "import", "quit", "exit", "undo"}

modes = list(SCHEMA.modes)
submodes = sorted({row.shell for entity in SCHEMA.types.values() for row in entity.submodes})
parameters = sorted({row.shell for entity in SCHEMA.types.values() for row in entity.rows})
objects = [
    *("default", "gpu-nodes", "node001", "node00[1-3]", "node001..node003", "master", "basecm10", "internalnet"),
    *("kube-default", "kube-default-master", "kube-default-worker", "docker::host", "kubelet", "generic::containerd"),
    *("firewall", "system", "calico", "nvidia", "0", "1", "containerd-cri", "new-one", "overlay2", "physicalnode"),
]
values = [
    "yes",
    "no",
    "10",
    "70000",
    "1.2.3.4",
    "a,b",
    "''",
    "{files}/914",
    "x=y",
    "-v",
    "-d",
    "{}",
    "{2}",
    "--at",
    "1",
]
values += ["-e", "--force", "--dry-run", "-m", "-n", "--", "..", "/", "*", "kube-apiserver.yaml", "(", ")", "(list)"]
junk = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
word = st.one_of(
    st.sampled_from([*COMMANDS, "cmsh"]),
    st.sampled_from([*modes, *submodes]),
    st.sampled_from(objects),
    st.sampled_from(parameters),
    st.sampled_from(values),
    junk,
)
sign = st.sampled_from([" ", " ", " ", " ", " ", "; ", " | ", " # ", "'", '"', "\\", ""])
random_line = st.lists(st.tuples(word, sign), min_size=1, max_size=7).map(
    lambda parts: "".join(text + between for text, between in parts)
)
sensible_line = st.one_of(
    st.builds("{} use {}".format, st.sampled_from(modes), st.sampled_from(objects)),
    st.sampled_from([*modes, *submodes]),
    st.builds("set {} {}".format, st.sampled_from(parameters), st.sampled_from(values)),
    st.builds("{} {}".format, st.sampled_from(["use", "add", "remove", "show", "clone"]), st.sampled_from(objects)),
    st.sampled_from(["list", "show", "commit", "plan", "explain", "diff", "history", "audit", "..", "list -d {}"]),
)
ways = [
    [],
    ["kubernetes"],
    ["kubernetes", "appgroups", "applications system", "use calico"],
    ["kubernetes", "labelsets", "use nvidia"],
    ["category use default", "roles", "assign docker::host"],
    ["category", "set default notes mine"],
    ["device use node001"],
    ["device use master", "roles", "use firewall", "openports"],
    ["configurationoverlay use kube-default-master", "roles", "use kubelet"],
    ["configurationoverlay use kube-default-worker", "roles", "use generic::containerd", "configurations"],
    ["network use internalnet", "set domainname other.example"],
]
common_line = st.sampled_from(
    ["list", "show", "commit", "diff -v", "plan -v", "..", "list -v", "show -d {}", "get kubecakey"]
)
session_lines = st.builds(
    lambda way, lines: way + lines,
    st.sampled_from(ways),
    st.lists(st.one_of(common_line, sensible_line, random_line), min_size=4, max_size=14),
)


class Careful(Desk):
    """Runs nothing on the host, whatever is behind `!` and `|`."""

    async def _run(self, command: str, text: str | None) -> tuple[int, str]:
        return 0, text or ""


async def drive(lines: list[str], folder: Path) -> None:
    async with head_with("deployed", folder) as head:
        desk = Careful(head, files=sized_files(folder / "files"), interactive=True)
        await desk.do("device use node006", "set notes planted", "kubernetes", f"set kubecakey {STAGED}", "/")
        for line in lines:
            for prefix in {line, line[: len(line) // 2]}:
                shown = [completion.text + completion.about for completion in desk.shell.complete(prefix)]
                assert not any(secret in text for text in shown for secret in (STAGED, COMMITTED))
            if "--with-secrets" in line or "node006" in line:
                continue
            said = await desk.type(line)
            assert said.code in (0, 1, 2, 3), line
            assert STAGED not in said.out + said.err and COMMITTED not in said.out + said.err, line
            assert "Traceback" not in said.out + said.err, line
            assert bool(said.err) or said.code in (0, 3), f"{line!r} failed without a word"
            assert desk.prompt.startswith("[basecm10") and desk.prompt.endswith("]% ")
            if desk.shell.is_over or any(name in line.lower() for name in DROPPING):
                break
            assert desk.shell.desk.session.tree.get(PLANTED).values.get("notes") == "planted", f"{line!r} lost it"


def driven(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(drive(lines, Path(folder)))


@pytest.fixture(scope="module", autouse=True)
def elsewhere() -> Iterator[None]:
    """`export NAME` writes where one stands."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


@settings(max_examples=45, deadline=None, suppress_health_check=list(HealthCheck))
@given(session_lines)
def test_no_line_breaks_the_shell_loses_edits_or_shows_a_secret(lines: list[str]) -> None:
    driven(lines)


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
@given(session_lines)
def test_no_line_breaks_the_shell_loses_edits_or_shows_a_secret_many_times(lines: list[str]) -> None:
    driven(lines)
