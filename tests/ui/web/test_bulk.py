"""Many objects at once: ticked or filtered, staged by one form, committed as one revision."""

from __future__ import annotations

import pytest
from tests.head.committing import commit, commit_session
from tests.ui.web.conftest import Place
from tests.ui.web.reading import Page, Reader

from bedplate.api.headapi import Result
from bedplate.head.objects import Obj
from bedplate.head.session import Edit


async def ticked(reader: Reader, mode: str, *names: str) -> Page:
    await reader.get(f"/show/{mode}")
    return await reader.submit(f"/bulk/{mode}", which="ticked", on="\n".join(names))


def values(place: Place, name: str, mode: str = "device") -> dict[str, object]:
    return dict(place.head.tree.get((mode, name)).values)


async def test_ticked_objects_are_planned_together_and_committed_as_one_revision(place: Place) -> None:
    reader = await place.reader("operator")
    page = await ticked(reader, "device", "node001", "node002", "node003", "node005")
    assert page.status == 200
    assert "Edit 4 Devices" in page.text
    assert "node001..node003,node005" in page.text
    assert "now: 3 default, 1 gpu-nodes" in page.text
    page = await reader.submit(
        "/bulk/device", f__category="set:gpu-nodes", f__notes="moved", f__install_mode="set:FULL"
    )
    assert "4 Devices are staged: one commit changes them all." in page.text
    assert "Changes 4" in page.text
    assert "Diff 4 objects" in page.text
    assert "changed device[node001..node003] 3 objects" in page.text
    assert "Category default → gpu-nodes" in page.text
    assert "on 4 nodes" in page.text
    assert "node001..node003 3 nodes" in page.text
    assert "the device itself" in {row["Because of"] for row in page.rows("Because of")}
    assert place.head.revision == 1, "staging changes nothing"
    page = await reader.submit("/changes/commit", message="to gpu")
    assert "Revision 2 is committed." in page.text
    for name in ("node001", "node002", "node003", "node005"):
        assert values(place, name)["category"] == "gpu-nodes"
        assert values(place, name)["notes"] == "moved"
    assert "notes" not in values(place, "node004")
    assert (await place.head.read(2)).author == "operator"


async def test_everything_that_a_filter_leaves_is_edited_on_all_pages_also_by_state(place: Place) -> None:
    many = [Edit("device", f"n{i}", None, Obj("PhysicalNode", f"n{i}", {"category": "default"})) for i in range(250)]
    await commit(place.head, many, "setup")
    for name in ("node001", "n7"):
        await place.service.health.record(name, [Result("disk", "FAIL")])
    reader = await place.reader()
    page = await reader.get("/show/device?q=n2")
    assert "Edit all 61 that match…" in page.text
    page = await reader.submit("/bulk/device", which="all")
    assert "Edit 61 Devices" in page.text
    await reader.get("/show/device?q=FAIL")
    page = await reader.submit("/bulk/device", which="all")
    assert "n7,node001" in page.text
    assert "Edit 2 Devices" in (await reader.get("/bulk/device?q=up+fail")).text
    await reader.get("/show/device")
    assert "Edit 258 Devices" in (await reader.submit("/bulk/device", which="all")).text


async def test_what_is_left_empty_stays_and_a_value_can_be_taken_away(place: Place) -> None:
    session = place.head.session()
    for name in ("node001", "node002"):
        session.set(("device", name), "notes", "old")
        session.set(("device", name), "installmode", "FULL")
    await commit_session(place.head, session, "setup")
    reader = await place.reader()
    await ticked(reader, "device", "node001", "node002")
    page = await reader.submit("/bulk/device")
    assert page.status == 422
    assert "Nothing was staged: fill in what should become another." in page.text
    await reader.submit("/bulk/device", do__notes="clear", f__install_mode="clear")
    await reader.submit("/changes/commit", message="")
    for name in ("node001", "node002"):
        assert {"notes", "install_mode"}.isdisjoint(values(place, name))
        assert values(place, name)["category"] == "default"


async def test_lists_are_added_to_and_taken_from(place: Place) -> None:
    reader = await place.reader()
    overlays = ("kube-default-master", "kube-default-worker")
    before = [values(place, name, "configurationoverlay") for name in overlays]
    await ticked(reader, "configurationoverlay", *overlays)
    await reader.submit("/bulk/configurationoverlay", do__nodes="add", f__nodes="node007", f__priority="600")
    await reader.submit("/changes/commit", message="")
    for name, old in zip(overlays, before, strict=True):
        held, nodes = values(place, name, "configurationoverlay"), old["nodes"]
        assert isinstance(nodes, tuple)
        assert held["nodes"] == (*nodes, "node007") if "node007" not in nodes else nodes
        assert held["priority"] == 600
    await ticked(reader, "configurationoverlay", *overlays)
    await reader.submit("/bulk/configurationoverlay", do__nodes="remove", f__nodes="node007", f__categories="gpu-nodes")
    await reader.submit("/changes/commit", message="")
    for name in overlays:
        assert "node007" not in str(values(place, name, "configurationoverlay")["nodes"])
        assert values(place, name, "configurationoverlay")["categories"] == ("gpu-nodes",)


async def test_roles_are_assigned_and_unassigned_and_who_has_one_keeps_it(place: Place) -> None:
    session = place.head.session()
    session.add(("category", "gpu-nodes", "roles"), "firewall")
    session.set(("category", "gpu-nodes", "roles", "firewall"), "backend", "nftables")
    await commit_session(place.head, session, "setup")
    reader = await place.reader()
    page = await ticked(reader, "category", "default", "gpu-nodes")
    assert "firewall (1)" in page.text
    page = await reader.submit("/bulk/category", assign="firewal")
    assert page.status == 422
    assert "did you mean firewall?" in page.text
    page = await reader.submit("/bulk/category", assign="Firewall")
    assert "1 Category is staged" in page.text
    await reader.submit("/changes/commit", message="")
    roles = [place.head.tree.get(("category", name, "roles", "firewall")) for name in ("default", "gpu-nodes")]
    assert [role.values for role in roles] == [{}, {"backend": "nftables"}]
    await ticked(reader, "category", "default", "gpu-nodes")
    await reader.submit("/bulk/category", unassign="firewall")
    await reader.submit("/changes/commit", message="")
    assert not any(
        place.head.tree.get(("category", name)).below("roles").get("firewall") for name in ("default", "gpu-nodes")
    )


async def test_errors_stand_beside_their_fields_and_nothing_is_staged(place: Place) -> None:
    reader = await place.reader()
    await ticked(reader, "configurationoverlay", "kube-default-master", "kube-default-worker")
    page = await reader.submit("/bulk/configurationoverlay", f__priority="many", f__nodes="node999")
    assert page.status == 422
    wrong = {attributes["name"] for _, attributes in page.elements if attributes.get("aria-invalid") == "true"}
    assert wrong == {"f.priority", "f.nodes"}
    assert page.form("/bulk/configurationoverlay").fields["f.nodes"] == "node999"
    assert "'many' must be an integer" in page.text
    assert "there is no device 'node999'" in page.text
    assert "Changes 0" in page.text


async def test_what_must_be_unique_and_what_is_secret_is_not_offered(place: Place) -> None:
    reader = await place.reader()
    page = await ticked(reader, "device", "node001", "basecm10")
    fields = page.form("/bulk/device").fields
    assert {"f.mac", "f.ip", "f.category"}.isdisjoint(fields), "a head node has no category"
    assert {"f.network", "f.notes"} <= set(fields)
    page = await ticked(reader, "kubernetes", "default")
    assert "f.kube_ca_key" not in page.form("/bulk/kubernetes").fields


async def test_an_object_that_somebody_else_changed_is_told_before_and_after_staging(place: Place) -> None:
    reader = await place.reader("operator")
    await ticked(reader, "device", "node001", "node002")
    session = place.head.session()
    session.set(("device", "node001"), "notes", "theirs")
    await commit_session(place.head, session, "alice")
    page = await reader.submit("/bulk/device", f__category="set:gpu-nodes")
    assert page.status == 409
    assert "were changed since this form was opened" in page.text
    assert page.form("/bulk/device").fields["f.category"] == "set:gpu-nodes"
    await reader.submit("/bulk/device")
    session = place.head.session()
    session.set(("device", "node002"), "notes", "theirs")
    await commit_session(place.head, session, "alice")
    page = await reader.get("/changes")
    assert "was changed by alice in revision 3 since you started editing" in page.text
    page = await reader.submit("/changes/commit", message="mine")
    assert page.status == 409
    assert values(place, "node001")["category"] == "default"


async def test_head_nodes_and_users_are_an_administrators(place: Place) -> None:
    reader = await place.reader("operator")
    await ticked(reader, "device", "node001", "basecm10")
    page = await reader.submit("/bulk/device", f__notes="words")
    assert "you cannot commit all of this" in page.text
    page = await reader.submit("/changes/commit", message="")
    assert page.status == 409
    assert place.head.revision == 1
    page = await reader.get("/show/user")
    assert not any(form.action == "/bulk/user" for form in page.forms)
    assert (await reader.get("/bulk/user?q=")).status == 403
    token = page.form("/logout").fields["form_token"]
    assert (await reader.post("/bulk/user", {"form_token": token, "which": "all"})).status == 403


async def test_the_last_administrator_is_not_edited_away(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/show/user")
    await reader.submit("/bulk/user", which="all")
    page = await reader.submit("/bulk/user", f__enabled="set:no")
    assert "3 Users are staged" in page.text
    assert "you cannot commit all of this" in page.text
    page = await reader.submit("/changes/commit", message="")
    assert page.status == 409
    assert place.head.revision == 1


@pytest.mark.parametrize("user", ["auditor", "operator"])
async def test_only_who_may_edit_is_offered_boxes_and_forms_of_others_are_refused(place: Place, user: str) -> None:
    reader = await place.reader(user)
    page = await reader.get("/show/device")
    assert any(form.action == "/bulk/device" for form in page.forms) is (user == "operator")
    page = await reader.post("/bulk/device", {"which": "all", "form_token": "of somebody else"})
    assert page.status == 403
    assert (await reader.get("/bulk/device?q=node")).status == (200 if user == "operator" else 403)
    assert not any(form.action == "/bulk/device" for form in (await reader.get("/show/device?at=1")).forms)


async def test_nothing_ticked_and_names_that_are_gone_or_never_were(place: Place) -> None:
    reader = await place.reader()
    page = await ticked(reader, "device")
    assert "Nothing is selected." in page.text
    page = await ticked(reader, "device", '"><img src=x>', "node001")
    assert "Edit 1 Device" in page.text
    assert "<img" not in page.html
    form = page.form("/bulk/device")
    page = await reader.post("/bulk/device", form.fields | {"names": '"><img src=x>', "f.notes": "<script>"})
    assert page.status == 200
    assert "Nothing is selected." in page.text
    assert (await reader.get("/bulk/none?q=")).status == 404


async def test_what_is_staged_alike_is_dropped_together(place: Place) -> None:
    reader = await place.reader()
    await ticked(reader, "device", "node001", "node002", "node003")
    await reader.submit("/bulk/device", f__notes="words")
    page = await reader.submit("/changes/drop")
    assert "What was staged for device[node001..node003] is discarded." in page.text
    assert "Changes 0" in page.text
