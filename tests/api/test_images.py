"""What an image update may touch: the rules, in the order in which the first that matches counts."""

from __future__ import annotations

import pytest

from bedplate.api.images import MARKER, PROTECTED, USUAL, Mode, escaped, mounts, rules

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
