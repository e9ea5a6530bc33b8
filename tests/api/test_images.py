"""What an image update may touch: the rules, in the order in which the first that matches counts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import programs

from bedplate.api.images import MARKER, PROTECTED, USUAL, Mode, escaped, mounts, rules, sooner

MODES: tuple[Mode, ...] = ("sync", "full", "update", "grab")


@pytest.mark.parametrize("mode", MODES)
def test_what_is_protected_comes_before_every_list(mode: Mode) -> None:
    given = rules(
        mode, ["+ /proc/*", "+ /etc/bedplate", "+ /etc/app.conf"], managed=["/etc/app.conf"], mounted=["/data"]
    )
    protected = [f"- {pattern}" for pattern in (*PROTECTED, "/data", "/etc/app.conf")]
    assert given[: len(protected)] == [f"- {pattern}" for pattern in PROTECTED] + ["- /data", "- /etc/app.conf"]
    assert given.index("+ /proc/*") >= len(protected)
    assert {f"- /{MARKER}", "- /var/lib/bedplate-agent", "- /sys/*", "- /dev/*"} <= set(given)


def test_lists_come_before_what_is_usual_so_that_they_can_let_something_through() -> None:
    given = rules("update", ["+ /var/log/journal", "/var/lib/containerd", "- *.cache"])
    assert [rule for rule in given if not rule.startswith("P ")][len(PROTECTED) :][:3] == [
        "+ /var/log/journal",
        "- /var/lib/containerd",
        "- *.cache",
    ]
    assert given[-len(USUAL["update"]) :] == [f"- {pattern}" for pattern in USUAL["update"]]


def test_a_list_makes_no_rule_but_these_two_kinds() -> None:
    """Rules of rsync that read a file, or that clear what stands before them, are patterns like any other here."""
    given = rules("full", ["", "  ", "# a remark", "!", ". /etc/shadow", ": .rules", "- ", "+ ", "a\n+ /proc", "P /x"])
    given = [rule for rule in given if not rule.startswith("P ")]
    assert given[len(PROTECTED) : -len(USUAL["full"])] == ["- !", "- . /etc/shadow", "- : .rules", "- P /x"]


def test_a_folder_with_something_protected_in_it_is_not_deleted() -> None:
    given = rules("update", managed=["/srv/app/app.conf"])
    assert {"P /srv/", "P /srv/app/", "P /var/lib/", "P /proc/", "P /etc/"} <= set(given)


def test_full_leaves_the_identity_of_the_machine_and_nothing_else() -> None:
    assert USUAL["full"] == ("/etc/fstab", "/etc/hostname", "/etc/machine-id")
    assert set(USUAL["full"]) < set(USUAL["update"]) == set(USUAL["sync"]) < set(USUAL["grab"])


def test_a_path_with_wildcards_matches_itself_alone() -> None:
    assert escaped("/etc/app.conf") == "/etc/app.conf"
    assert escaped("/etc/a[1]*?") == r"/etc/a\[1]\*\?"
    assert escaped("/etc/back\\slash*") == r"/etc/back\\slash\*"


def test_mounts_that_are_not_part_of_the_system_are_left_alone() -> None:
    table = "\n".join(
        f"1 2 0:3 / {path} rw - ext4 /dev/x rw"
        for path in (
            "/",
            "/boot",
            "/var",
            "/data",
            "/data/inner",
            "/mnt/with\\040blank",
            "/proc",
            "/node/data",
            "/node",
        )
    )
    assert mounts(table) == ["/data", "/mnt/with blank", "/node", "/proc"]
    assert mounts(table + "\nbroken", "/node") == ["/data"]


# Fewer comparisons

NAMES = st.sampled_from(["usr", "usr2", "us", "var", "bin", "a"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
PATTERNS = st.one_of(
    PATHS,
    PATHS.map(lambda path: f"{path}/"),
    PATHS.map(lambda path: f"{path}/*"),
    st.sampled_from(["*.o", "usr", "/*", "/u*/bin", "/usr*", "/usr/b?n", "bin/", "/**"]),
)


WORDS = {"**": ".*", "*": "[^/]*", "?": "[^/]"}


def verdict(lines: list[str], path: str) -> str:
    """What the first rule that matches a path says of it, which is a folder: as rsync reads these kinds of rules."""
    for line in lines:
        sign, _, pattern = line.partition(" ")
        text = re.sub(r"\*\*|\*|\?|[^*?]+", lambda part: WORDS.get(part[0]) or re.escape(part[0]), pattern.rstrip("/"))
        if re.fullmatch(text if pattern.startswith("/") else f"(.*/)?{text}", path):
            return sign
    return "+"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+-P"), PATTERNS).map(" ".join), max_size=8), PATHS)
def test_rules_in_another_order_decide_the_same(lines: list[str], path: str) -> None:
    assert verdict(sooner(lines), path) == verdict(lines, path)


def test_what_is_below_usr_is_held_against_few_rules() -> None:
    lines = sooner(rules("update", ["- /usr/local/share", "/srv/data"], managed=["/etc/app.conf"]))
    end = lines.index("+ /usr/**")
    assert end < 10 and all(" /usr/" in line for line in lines[:end])
    assert not [line for line in lines[end + 1 :] if "/usr" in line]
    # A pattern that may match anywhere leaves all as it is.
    some = rules("update", ["*.pyc", "- /usr/local"])
    assert sooner(some) == some


@pytest.mark.external
@pytest.mark.parametrize("extra", [[], ["+ /usr/bin/a", "- /usr/bin", "/srv"], ["*.o"], ["- /usr"]])
def test_rsync_copies_and_deletes_the_same_by_either_order(tmp_path: Path, extra: list[str]) -> None:
    rsync = programs.on_path("rsync")
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in ("usr/bin", "usr/lib/systemd/system", "usr/share/doc", "etc/ssh", "var/log", "srv", "proc", "opt"):
        for side, names in ((source, ("a", "b", "c.o")), (target, ("a", "gone", "d.o", "bedplate-agent"))):
            (side / folder).mkdir(parents=True, exist_ok=True)
            for name in names:
                (side / folder / name).write_text(f"{side.name} {name}")
    lines = rules("update", extra, managed=["/usr/share/doc/gone", "/etc/ssh/a"])
    said = []
    for order in (lines, sooner(lines)):
        (tmp_path / "rules").write_text("".join(f"{line}\n" for line in order))
        command = [rsync, "-rcin", "--delete", f"--filter=merge {tmp_path}/rules", f"{source}/", f"{target}/"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        said.append(sorted(done.stdout.splitlines()))
    assert said[0] == said[1] and any("*deleting" in line for line in said[0])
