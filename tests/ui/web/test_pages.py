"""What the pages show, read without JavaScript."""

from __future__ import annotations

import functools
import re

import pytest
from tests.head.committing import commit, commit_session
from tests.ui.web.conftest import Place
from tests.ui.web.reading import Page, Reader

from bedplate.api.headapi import Result
from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj
from bedplate.head.policy import Identity
from bedplate.head.rollout import Batches
from bedplate.head.session import Edit
from bedplate.ui.web import links
from bedplate.ui.web.engine import SECURITY

EVERYWHERE = [
    "/",
    "/health",
    "/images",
    "/rollout",
    "/roles",
    "/appgroups",
    "/people",
    "/people/default",
    "/credentials",
    "/bulk/device?q=node",
    "/events",
    "/history",
    "/history/1",
    "/history/1/undo",
    "/changes",
    "/search?q=node",
    "/show/device",
    "/show/device/node001",
    "/show/device/basecm10",
    "/show/kubernetes/default",
    "/show/kubernetes/default/label_sets",
    "/show/configurationoverlay/kube-default-master/roles/generic::containerd",
    "/edit/device/node001",
    "/edit/kubernetes/default",
    "/edit/configurationoverlay/kube-default-master/roles/kubelet",
    "/add/device",
    "/add/category/default/roles",
    "/file?node=node001&path=/etc/kubernetes/kubelet.env",
    "/nowhere",
]


async def test_the_overview_counts_machines_and_clusters(place: Place) -> None:
    await place.service.health.record("node001", [Result("disk", "PASS")])
    await place.service.health.record("node002", [Result("disk", "FAIL", info="full")])
    await place.service.notices.add("node002", "Check disk failed: full", "warning")
    page = await (await place.reader()).get("/")
    cluster = page.rows("Cluster")[0]
    assert (cluster["Cluster"], cluster["Control plane"], cluster["Workers"]) == ("default", "3", "4")
    assert page.rows("Machine")[0]["State"] == "UP FAIL disk"
    assert "2 UP 0 DOWN 6 UNKNOWN 1 FAIL" in page.text
    assert "first tree" in page.text
    assert "node002 Check disk failed: full" in page.text


async def test_the_overview_shows_a_roll_out_while_it_is_under_way(place: Place) -> None:
    fleet, reader = place.service.fleet, await place.reader()
    assert fleet is not None
    assert "Roll-out of" not in (await reader.get("/")).text
    category = place.head.tree.get(("category", "gpu-nodes"))
    edit = Edit("category", "gpu-nodes", category, category.with_value("software_image", "my-new-image"))
    hold = functools.partial(fleet.rollouts.hold, Batches("1"), "anna")
    await place.head.commit_as(Identity.local("anna"), [edit], before_write=hold)
    text = (await reader.get("/")).text
    assert "Roll-out of revision 2 running" in text and "1 of 2 nodes have it, 1 at a time" in text
    await fleet.rollouts.act(Identity.local("anna"), "undo")
    assert "1 of 2 nodes have it" not in (await reader.get("/")).text


async def test_a_machine_that_fell_silent_is_down(place: Place) -> None:
    await place.service.health.record("node001", [Result("disk", "PASS")])
    await place.clock.advance(3600)
    page = await (await place.reader()).get("/")
    assert page.rows("Machine")[0]["Machine"] == "node001"
    assert page.rows("Machine")[0]["State"] == "DOWN"


@pytest.mark.parametrize("mode", SCHEMA.modes)
async def test_every_mode_of_the_schema_has_a_list_and_its_objects_have_pages(place: Place, mode: str) -> None:
    reader = await place.reader()
    page = await reader.get(f"/show/{mode}")
    assert page.status == 200
    for key in list(place.head.tree.mode(mode))[:2]:
        shown = await reader.get(f"/show/{mode}/{key}")
        assert shown.status == 200
        groups = SCHEMA.of(place.head.tree.get((mode, key))).grouped()
        labels = [row.label for _, rows in groups for row in rows]
        assert [row["Parameter"] for row in shown.every("Parameter")] == labels
        assert [group.label in shown.text for group, _ in groups] == [True] * len(groups)


async def test_a_list_has_the_columns_and_rows_of_the_shell(place: Place) -> None:
    page = await (await place.reader()).get("/show/configurationoverlay")
    rows = page.rows("Name (key)")
    assert [row["Name (key)"] for row in rows] == ["kube-default-etcd", "kube-default-master", "kube-default-worker"]
    master = rows[1]
    assert (master["Priority"], master["Nodes"]) == ("510", "node001..node003")
    assert master["Roles"] == "generic::containerd, kubelet"


async def test_lists_are_filtered_sorted_and_cut_into_pages_by_the_server(place: Place) -> None:
    reader = await place.reader()
    page = await reader.get("/show/device?q=gpu&sort=0&order=down")
    assert [row["Hostname (key)"] for row in page.rows("State")] == ["node006", "node005"]
    many = [Edit("device", f"n{i}", None, Obj("PhysicalNode", f"n{i}", {"category": "default"})) for i in range(450)]
    await commit(place.head, many, "setup")
    first = await reader.get("/show/device?q=n&page=1")
    assert len(first.rows("State")) == 200
    assert any("page=2" in way for way in first.links())
    last = await reader.get("/show/device?page=3")
    assert len(last.rows("State")) == 458 - 400
    assert last.rows("State")[-1]["Hostname (key)"] == "node007"


async def test_inherited_values_name_their_source(place: Place) -> None:
    page = await (await place.reader()).get("/show/device/node001")
    shown = {row["Parameter"]: row["Value"] for row in page.every("Parameter")}
    assert shown["Software image"] == "default-image from category:default"
    assert shown["Category"] == "default"


async def test_a_device_shows_which_roles_hold_and_why(place: Place) -> None:
    page = await (await place.reader()).get("/show/device/node001")
    roles = {row["Role"]: row for row in page.rows("Given by")}
    assert roles["kubelet"]["Given by"] == "overlay:kube-default-master"
    assert roles["kubelet"]["Would be next"] == "overlay:kube-default-worker"
    facts = {(row["Kind"], row["Name"]): row for row in page.rows("Because of")}
    assert facts["file", "/etc/kubernetes/kubelet.env"]["Because of"].startswith("overlay:kube-default-master")
    assert facts["setting", "software_image"]["Revision"] == "1"


async def test_health_is_plotted_by_the_server(place: Place) -> None:
    for at in range(30):
        place.clock.jump(60)
        status = "FAIL" if at % 10 == 9 else "PASS"
        await place.service.health.record("node001", [Result("load", "PASS", at * 1.5), Result("disk", status)])
    page = await (await place.reader()).get("/show/device/node001")
    plots = {attributes["aria-label"] for name, attributes in page.elements if name == "svg" and "role" in attributes}
    assert plots == {"load: 30 results, 0 failed, between 0 and 43.5", "disk: 30 results, 3 failed"}
    assert sum(name == "polyline" for name, _ in page.elements) == 1
    assert sum(name == "rect" and attributes["class"] == "bad" for name, attributes in page.elements) == 3
    health = {row["Check"]: row for row in page.rows("Check")}
    assert health["disk"]["Now"] == "FAIL"


async def test_one_check_is_shown_with_its_history_on_every_machine(place: Place) -> None:
    for at in range(3):
        for node in ("node001", "node002"):
            await place.service.health.record(node, [Result("load", "FAIL" if at == 2 else "PASS", float(at))])
    await place.service.health.record("node003", [Result("disk", "PASS")])
    reader = await place.reader()
    assert "/health?check=load" in (await reader.get("/health")).links()
    page = await reader.get("/health?check=load")
    assert [(row["Machine"], row["Now"]) for row in page.rows("History")] == [("node001", "FAIL"), ("node002", "FAIL")]
    assert sum(name == "polyline" for name, _ in page.elements) == 2
    assert "No machine has reported a check none" in (await reader.get("/health?check=none")).text


async def test_the_past_is_shown_at_any_revision_and_cannot_be_edited(place: Place) -> None:
    session = place.head.session()
    session.set(("device", "node001"), "notes", "new words")
    await commit_session(place.head, session, "setup")
    reader = await place.reader()
    past = await reader.get("/show/device/node001?at=1")
    assert "new words" not in past.text
    assert "This is how it was at revision 1" in past.text
    assert not any(form.action.startswith(("/remove", "/clone")) for form in past.forms)
    assert "new words" in (await reader.get("/show/device/node001?at=2")).text
    assert (await reader.get("/show/device/node001?at=9")).status == 404
    assert (await reader.get("/show/device/node001?at=x")).status == 400


async def test_search_finds_names_values_and_what_lies_below(place: Place) -> None:
    reader = await place.reader()
    page = await reader.get("/search?q=containerd")
    found = {row["Object"] for row in page.rows("Found in")}
    assert "configurationoverlay[kube-default-master]->roles[generic::containerd]" in found
    by_value = (await reader.get("/search?q=my-new-image")).rows("Found in")
    assert {(row["Object"], row["Found in"]) for row in by_value} == {("softwareimage[my-new-image]", "name")}
    assert "No object matches" in (await reader.get("/search?q=nothing-like-it")).text


async def test_a_rendered_file_is_shown(place: Place) -> None:
    page = await (await place.reader()).get("/file?node=node001&path=/etc/kubernetes/kubelet.env")
    assert page.status == 200
    assert "Mode 0644, owner root:root" in page.text
    missing = await (await place.reader()).get("/file?node=node001&path=/etc/none")
    assert missing.status == 404
    assert "What to do" in missing.text


async def test_what_is_not_there_says_where_to_go(place: Place) -> None:
    reader = await place.reader()
    for address in ("/nowhere", "/show/device/none", "/show/nomode", "/history/99", "/show/device/node001/none"):
        page = await reader.get(address)
        assert page.status == 404, address
        assert {"/", "/show/device", "/search"} <= set(page.links())
        assert "Not found" in page.text


async def test_the_api_is_left_to_others(place: Place) -> None:
    reader = await place.reader()
    async with reader.client.get("/api/v1/none") as response:
        assert response.status == 404
        assert "text/html" not in response.headers["Content-Type"]


@pytest.mark.parametrize("address", EVERYWHERE)
async def test_pages_hold_no_script_no_style_and_nothing_foreign_and_label_every_input(
    place: Place, address: str
) -> None:
    page = await (await place.reader()).get(address)
    assert page.status == (404 if address == "/nowhere" else 200)
    _no_inline_code(page)
    assert page.headers["Content-Security-Policy"] == SECURITY["Content-Security-Policy"]
    assert page.headers["Cache-Control"] == "no-store"
    assert [name for form in page.forms for name in form.unlabelled] == []
    for form in page.forms:
        assert form.method == "get" or form.fields.get("form_token"), form.action
    assert sum(name == "h1" for name, _ in page.elements) == 1
    assert ("html", {"lang": "en"}) in page.elements
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)), "an id is used twice"
    for name, attributes in page.elements:
        if name == "a" and attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in ids


def _no_inline_code(page: Page) -> None:
    for name, attributes in page.elements:
        assert "style" not in attributes
        assert name != "style"
        assert not [word for word in attributes if word.startswith("on")]
        if name == "script":
            assert attributes["src"].startswith("/static/")
        for word in ("src", "href", "action"):
            assert not re.match(r"(?i)[a-z]+:|//", attributes.get(word, "")), attributes
    assert not re.search(r"<script[^>]*>[^<]", page.html)


@pytest.mark.parametrize(
    "address",
    [
        "/show/device/%00",
        "/show/%2F%2F",
        "/show/device/node001/roles/x/y/z",
        "/show/kubernetes/default/label_sets/amd/none",
        "/edit/device",
        "/edit/device/node001/roles",
        "/add/device/node001",
        "/show/device?page=99999999999999999999&sort=77&q=%FF",
        "/health?page=-1&check=%00",
        "/history?before=x",
        "/history?before=0",
        "/history/0",
        "/history/0/undo",
        "/history/999999999999/file?node=a&path=b",
        "/history/1/file",
        "/changes/file?node=none&path=/etc",
        "/search?q=%F0%9F%A6%8A%00%ff",
        "/file?node=&path=",
        "/show/device/node001?at=0",
        "/show/device/node001?at=99999999999999999999",
        "/events/none",
        "/show/" + "x/" * 500,
    ],
)
async def test_nonsense_in_an_address_is_answered_with_a_page(place: Place, address: str) -> None:
    page = await (await place.reader()).get(address)
    assert page.status in (200, 400, 404), page.text
    assert "Overview" in page.text


async def test_a_form_that_is_none_is_refused(place: Place) -> None:
    reader = await place.reader()
    for headers, body in [
        ({"Content-Type": "application/x-www-form-urlencoded; charset=none"}, b"form_token=%41"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"\xff\xfe=1"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"nonsense"),
        ({"Content-Type": "application/json"}, b"{}"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"a=" + b"x" * 2_000_000),
    ]:
        for address in ("/edit/device/node001", "/login", "/logout"):
            async with reader.client.post(address, data=body, headers=headers) as response:
                assert response.status in (400, 403, 413), (address, headers, response.status)
                assert "text/html" in response.headers["Content-Type"]


async def test_static_files_are_kept_by_their_digest(place: Place) -> None:
    reader = await place.reader("")
    page = await reader.get("/login")
    address = next(attributes["href"] for name, attributes in page.elements if attributes.get("rel") == "stylesheet")
    async with reader.client.get(address) as response:
        assert response.status == 200
        assert "immutable" in response.headers["Cache-Control"]
        assert response.headers["Content-Type"] == "text/css; charset=utf-8"
    for name in ("none.css", "..%2Fengine.py", "engine.py"):
        async with reader.client.get(f"/static/{name}") as response:
            assert response.status == 404


async def test_names_from_the_tree_are_escaped(place: Place) -> None:
    session = place.head.session()
    session.set(("device", "node001"), "notes", "<script>alert(1)</script>")
    session.set_extra(("device", "node001"), "x", '"><img src=x>')
    await commit_session(place.head, session, "setup", "<b>bold</b>")
    reader: Reader = await place.reader()
    for address in ("/", "/show/device/node001", "/edit/device/node001", "/history/2", "/search?q=<script>", "/events"):
        page = await reader.get(address)
        _no_inline_code(page)
        assert "<b>bold" not in page.html
        assert "<img" not in page.html


async def test_the_overview_begins_with_trouble_then_what_changed_then_machines_by_category(place: Place) -> None:
    page = await (await place.reader()).get("/")
    order = [page.html.index(f'id="{name}"') for name in ("trouble", "revisions", "machines", "clusters", "objects")]
    assert order == sorted(order)
    assert "None yet" in page.text
    assert "1 etcd" in page.text and "2 Software images" in page.text and "2 Categories" in page.text
    assert [links.counted(SCHEMA, mode, 1) for mode in ("category", "softwareimage", "user", "kubernetes")] == [
        "Category",
        "Software image",
        "User",
        "Kubernetes",
    ]


async def test_of_what_is_in_trouble_the_worst_comes_first(place: Place) -> None:
    await place.service.health.record("node002", [Result("disk", "PASS")])
    await place.clock.advance(3600)
    await place.service.health.record("node001", [Result("disk", "FAIL")])
    page = await (await place.reader()).get("/")
    assert [(row["Machine"], row["State"]) for row in page.rows("Machine")] == [
        ("node002", "DOWN"),
        ("node001", "UP FAIL disk"),
    ]
    states = {row["Machine"]: row["State"] for row in (await (await place.reader()).get("/health")).rows("Machine")}
    assert (states["node002"], states["node001"], states["node003"]) == ("DOWN", "UP FAIL", "UNKNOWN")


async def test_of_a_machine_that_is_silent_no_check_passes(place: Place) -> None:
    await place.service.health.record("node001", [Result("disk", "PASS")])
    await place.clock.advance(3600)
    page = await (await place.reader()).get("/show/device/node001")
    assert [row["Now"] for row in page.rows("Check")] == ["UNKNOWN"], "as the shell and REST say it"


async def test_many_hosts_beside_one_notice_are_cut(place: Place) -> None:
    for number in range(1, 40, 2):
        await place.service.notices.add(f"odd{number:02d}", "Check disk failed", "warning")
    page = await (await place.reader()).get("/")
    assert "odd01,odd03,odd05,odd07,… Check disk failed 20 times" in page.text
    assert "odd39" not in page.text


async def test_thousands_of_machines_are_squares_with_their_names_for_those_who_cannot_see_them(place: Place) -> None:
    session = place.head.session()
    for number in range(150):
        session.set(session.add(("device",), f"many{number:03d}"), "category", "default")
    await commit_session(place.head, session, "alice")
    page = await (await place.reader()).get("/")
    assert "many000: UNKNOWN" in page.text
    assert 'class="map"' in page.html and 'class="grid"' not in page.html


async def test_history_says_what_a_revision_without_a_message_changed(place: Place) -> None:
    session = place.head.session()
    session.set(("device", "node001"), "notes", "x")
    await commit_session(place.head, session, "alice")
    reader = await place.reader()
    for address in ("/", "/history", "/history/2"):
        assert "device[node001] notes" in (await reader.get(address)).text, address
