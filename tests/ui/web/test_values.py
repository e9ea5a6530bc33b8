"""The pure parts: plots, diffs, links, logins, the menu."""

from __future__ import annotations

from tests.head import sites

from bedplate.api.headapi import Notice
from bedplate.core.clock import ManualClock
from bedplate.head.changes import Change
from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Secret
from bedplate.head.plan import PlannedAction
from bedplate.head.resolve import Source
from bedplate.head.schema.entity import Schema, Submode
from bedplate.ui.web import diffs, events, links, plots
from bedplate.ui.web.links import navigation
from bedplate.ui.web.logins import IDLE_S, Logins, Proof
from bedplate.ui.web.plots import Reading


def test_a_history_without_values_is_a_strip() -> None:
    made = plots.plot("disk", [Reading("t1", "PASS"), Reading("t2", "FAIL", None, "full"), Reading("t3", "UNKNOWN")])
    assert [mark.tone for mark in made.marks] == ["good", "bad", "unknown"]
    assert made.marks[1].words == "t2 FAIL: full"
    assert made.line == ""
    assert made.words == "disk: 3 results, 1 failed"


def test_measured_values_are_a_line_within_its_frame() -> None:
    made = plots.plot("load", [Reading("t", "PASS", value) for value in (1.0, 3.0, 2.0)])
    points = [tuple(map(float, point.split(","))) for point in made.line.split()]
    assert points[1][1] < points[2][1] < points[0][1], "higher values stand higher"
    assert all(0 <= x <= plots.WIDTH and 0 <= y <= plots.HEIGHT for x, y in points)
    assert (made.low, made.high) == ("1", "3")


def test_plots_of_nothing_of_equal_values_and_of_too_many() -> None:
    assert plots.plot("x", []).marks == ()
    assert plots.plot("x", [Reading("t", "PASS", 5.0)] * 2).line
    assert len(plots.plot("x", [Reading("t", "PASS")] * 500).marks) == 120


def test_few_results_stand_at_the_right() -> None:
    made = plots.plot("x", [Reading("t", "PASS"), Reading("t", "PASS")])
    assert made.marks[0].x > plots.WIDTH * 0.9
    assert made.marks[1].x + made.marks[1].width <= plots.WIDTH


def test_notices_that_say_the_same_are_told_once() -> None:
    said = [
        Notice(id=9 - at, time="t", severity="notice", host=f"node00{9 - at}", text="Service nginx was reloaded")
        for at in range(4)
    ]
    said.append(Notice(id=5, time="t", severity="warning", host="node001", text="Check disk failed"))
    found = events.together(said)
    assert [(hosts, size) for hosts, size, _ in found] == [("node006..node009", 4), ("node001", 1)]
    assert found[0][2].id == 9


def test_changes_are_told_in_the_words_of_the_declarations() -> None:
    path = ("configurationoverlay", "o", "roles", "kubelet")
    rows = [
        Change((*path, "max_pods"), None, 250),
        Change((*path, "options"), None, [{"type": "KubeletOption", "values": {"key": "v", "value": "4"}}]),
        Change(("configurationoverlay", "o", "extra:rack"), None, "B7"),
        Change(("configurationoverlay", "o", "nodes"), ["node001", "node002", "node003"], []),
    ]
    (section,) = diffs.sections(SCHEMA, rows)
    assert (section.title, section.verb) == ("configurationoverlay[o]", "changed")
    said = {row.label: (row.old, row.new, row.lines) for row in section.rows}
    assert said["Roles[kubelet] › Max Pods"] == ("110 (default)", "250", ())
    assert said["Roles[kubelet] › Options"] == ("", "", ("+ Key: v, Value: 4",))
    assert said["rack"] == ("", "B7", ())
    assert said["Nodes"] == ("node001..node003", "", ())


def test_secrets_are_told_as_secrets() -> None:
    path = ("kubernetes", "c", "kube_ca_key")
    for old, new, words in [
        (None, "*****", ("not set", "secret")),
        ("*****", None, ("secret", "not set")),
        ("*****", "*****", ("secret", "another secret")),
    ]:
        (section,) = diffs.sections(SCHEMA, [Change(path, old, new)])
        assert (section.rows[0].old, section.rows[0].new) == words


def test_long_texts_are_compared_by_lines() -> None:
    old = "\n".join(f"line {number}" for number in range(100))
    path = ("configurationoverlay", "o", "customizations", "f", "content")
    (section,) = diffs.sections(SCHEMA, [Change(path, old, old.replace("line 50", "another"))])
    lines = section.rows[0].lines
    assert ("- line 50" in lines, "+ another" in lines) == (True, True)
    assert len(lines) == 6


def test_objects_that_came_or_went_are_told_whole() -> None:
    data = {"type": "Category", "values": {"notes": "n"}, "children": {"roles": {"kubelet": {"type": "KubeletRole"}}}}
    added, removed = diffs.sections(
        SCHEMA, [Change(("category", "a"), None, data), Change(("category", "b"), data, None)]
    )
    assert (added.verb, removed.verb) == ("added", "removed")
    assert added.rows[0].lines == (
        "+ type: Category",
        "+ Notes: n",
        "+ Roles[kubelet]",
        "+     type: KubeletRole",
    )
    assert all(line.startswith("- ") for line in removed.rows[0].lines)


def test_a_plan_puts_nodes_together_although_their_files_differ() -> None:
    source = Source("category", "default", "kubelet")
    actions = [
        PlannedAction(
            f"node00{number}", "file", "/etc/x", "change", source, f"0644 sha256:{number:064d}", "y", "restart x"
        )
        for number in (1, 2, 3)
    ]
    actions.append(PlannedAction("node009", "label", "a", "add", source, "", "b"))
    first, second = diffs.groups(actions)
    assert (first.nodes, first.size) == ("node001..node003", 3)
    assert (first.steps[0].old, first.steps[0].new, first.steps[0].node) == ("", "y", "node001")
    assert (second.nodes, second.steps[0].new) == ("node009", "b")


def test_links_are_quoted_and_stay_here() -> None:
    assert links.show(("category", "a b?", "roles", "Docker::Host")) == "/show/category/a%20b%3F/roles/Docker::Host"
    assert links.title(("category", "a", "roles")) == "category[a]->roles"
    assert links.title(("category", "a", "roles", "x")) == "category[a]->roles[x]"
    assert links.local("/show/x?y=1") == "/show/x?y=1"
    assert {links.local(text) for text in ("", "//x", "http://x", "/\\x")} == {"/"}
    assert links.cause(sites.manual(), Source("configurationoverlay", "kube-default-master", "kubelet")) == (
        "/show/configurationoverlay/kube-default-master/roles/kubelet"
    )
    assert links.cause(sites.manual(), Source("category", "gone")) == ""


async def test_logins_end_after_hours_and_give_way_when_there_are_too_many() -> None:
    clock, tree = ManualClock(), sites.manual()
    logins = Logins(clock)
    kept = await logins.begin("a", Proof(Secret("hush")), tree)
    kept.session.set(("device", "node001"), "notes", "staged")
    for _ in range(1100):
        await logins.begin("b", Proof(), tree)
    assert len(logins) <= 1000
    assert await logins.find(kept.number, tree) is kept, "what somebody staged goes last"
    assert await logins.find("", tree) is None
    clock._monotonic += IDLE_S + 1
    assert await logins.find(kept.number, tree) is None
    assert "hush" not in repr(kept.proof)


def test_a_new_mode_is_in_the_menu_at_once() -> None:
    found = Schema([*SCHEMA.modes.values(), Submode("Rack", *SCHEMA.modes["category"].of, doc="racks")])
    entries = {entry.way: entry for group in navigation(found, "/show/rack/r1") for entry in group.entries}
    assert entries["/show/rack"].label == "Rack"
    assert entries["/show/rack"].is_here
    assert not entries["/"].is_here
