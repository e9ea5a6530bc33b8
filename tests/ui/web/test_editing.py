"""Staging, planning, committing and undoing by plain forms, as a browser without JavaScript does it."""

from __future__ import annotations

import pytest
from tests.head.committing import commit_session
from tests.ui.web.conftest import Place
from tests.ui.web.reading import Reader

from bedplate.head.objects import Secret
from bedplate.ui.web import commits

KUBELET = "configurationoverlay/kube-default-worker/roles/kubelet"
SECRET = "hunter2-never-shown"


def max_pods(place: Place) -> object:
    path = ("configurationoverlay", "kube-default-worker", "roles", "kubelet")
    return place.head.tree.get(path).values.get("max_pods")


async def stage(reader: Reader, address: str, **changed: str) -> None:
    await reader.get(f"/edit/{address}")
    page = await reader.submit(f"/edit/{address}", **changed)
    assert page.status == 200, page.text


async def test_a_change_is_staged_planned_committed_and_undone(place: Place) -> None:
    reader = await place.reader("operator")
    await stage(reader, KUBELET, f__max_pods="250")
    assert max_pods(place) is None, "staging changes nothing"
    page = await reader.get("/changes")
    assert "Roles[kubelet] › Max Pods 110 (default) → 250" in page.text
    plan = page.rows("Because of")
    assert [(row["Action"], row["Kind"], row["Name"]) for row in plan] == [
        ("change", "file", "/etc/kubernetes/kubelet.env"),
        ("change", "role", "kubelet"),
        ("restart", "service", "kubelet"),
    ]
    assert "node004..node007 4 nodes" in page.text
    done = await reader.submit("/changes/commit", message="more pods")
    assert "Revision 2 is committed." in done.text
    assert max_pods(place) == 250
    assert (await place.head.read(2)).author == "operator"
    assert (await place.head.read(2)).message == "more pods"
    history = await reader.get("/history")
    assert [row["Summary"] for row in history.rows("Summary")] == ["more pods", "first tree"]
    undo = await reader.get("/history/2/undo")
    assert "Roles[kubelet] › Max Pods 250 → 110 (default)" in undo.text
    page = await reader.submit("/history/2/undo")
    assert "Revision 2 is undone by revision 3." in page.text
    assert max_pods(place) is None
    assert "undone by 3" in (await reader.get("/history")).rows("Summary")[1]["Summary"]


async def test_staged_changes_belong_to_one_login(place: Place) -> None:
    one, other = await place.reader(), await place.reader()
    await stage(one, KUBELET, f__max_pods="250")
    assert "Changes 1" in (await one.get("/")).text
    assert "Changes 0" in (await other.get("/")).text
    assert "Nothing is staged" in (await other.get("/changes")).text
    assert "250" not in (await other.get(f"/show/{KUBELET}")).text
    starred = await one.get("/show/configurationoverlay")
    assert starred.rows("Name (key)")[2]["Name (key)"] == "kube-default-worker*"


async def test_staged_changes_can_be_dropped_one_by_one(place: Place) -> None:
    reader = await place.reader()
    await stage(reader, KUBELET, f__max_pods="250")
    await stage(reader, "device/node001", f__notes="a note")
    await reader.get("/changes")
    page = await reader.submit("/changes/drop")
    assert "configurationoverlay[kube-default-worker] is discarded" in page.text
    assert "Changes 1" in page.text
    drops = [form for form in page.forms if form.action == "/changes/drop"]
    assert [form.fields.get("key") for form in drops] == ["node001", None]
    page = await reader.post("/changes/drop", drops[1].fields)
    assert "Nothing is staged" in page.text


async def test_what_was_not_touched_in_a_form_stays_to_the_letter(place: Place) -> None:
    session = place.head.session()
    session.set(("device", "node001"), "notes", "two\nlines\twith a tab ")
    session.add(("category", "default", "roles"), "generic::site")
    role = ("category", "default", "roles", "generic::site")
    session.add((*role, "configurations"), "motd")
    session.set((*role, "configurations", "motd"), "filename", "/etc/motd")
    session.set((*role, "configurations", "motd"), "content", "\n\nfirst\n  second\n")
    await commit_session(place.head, session, "setup")
    reader = await place.reader()
    for address in (
        "device/node001",
        "category/default/roles/generic::site/configurations/motd",
        "kubernetes/default",
        "configurationoverlay/kube-default-etcd/roles/Etcd::Host",
        KUBELET,
        "user/admin",
        "device/basecm10",
        "etcd/kube-default",
    ):
        await reader.get(f"/edit/{address}")
        page = await reader.submit(f"/edit/{address}")
        assert "nothing is staged for it" in page.text, address
    assert "Changes 0" in (await reader.get("/")).text


async def test_errors_stand_beside_their_fields_and_lose_nothing(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/edit/device/node001")
    page = await reader.submit(
        "/edit/device/node001", f__ip="10.141.0", f__mac="nonsense", f__notes="kept words", extra__name="a b"
    )
    assert page.status == 422
    fields = page.form("/edit/device/node001").fields
    assert (fields["f.ip"], fields["f.mac"], fields["f.notes"]) == ("10.141.0", "nonsense", "kept words")
    assert "3 fields need another look; nothing was staged" in page.text
    wrong = {
        attributes["name"]: attributes["aria-describedby"].split()[-1]
        for name, attributes in page.elements
        if attributes.get("aria-invalid") == "true"
    }
    assert set(wrong) == {"f.ip", "f.mac"}
    assert {attributes.get("id") for _, attributes in page.elements} >= set(wrong.values())
    assert "'10.141.0' is not an IP address" in page.text
    assert "Changes 0" in page.text
    page = await reader.submit("/edit/device/node001", f__ip="10.141.0.9", f__mac="", extra__name="")
    assert page.status == 200
    assert "device[node001] is staged" in page.text


async def test_a_reference_to_nothing_is_refused_in_the_form(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/edit/configurationoverlay/kube-default-worker")
    page = await reader.submit("/edit/configurationoverlay/kube-default-worker", f__nodes="node00[4-6],node999")
    assert page.status == 422
    assert "there is no device 'node999'" in page.text
    await stage(reader, "configurationoverlay/kube-default-worker", f__nodes="node00[4-5]")
    assert "Nodes node004..node006 → node004,node005" in (await reader.get("/changes")).text


async def test_what_cannot_be_committed_says_why_and_stays_staged(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/show/softwareimage/default-image")
    await reader.submit("/remove/softwareimage/default-image")
    page = await reader.get("/changes")
    assert "This cannot be committed yet" in page.text
    assert "softwareimage[default-image] is used by category[default]" in page.text
    page = await reader.submit("/changes/commit", message="my message")
    assert page.status == 409
    assert page.form("/changes/commit").fields["message"] == "my message"
    assert "Changes 1" in page.text
    assert place.head.revision == 1


async def test_objects_are_added_copied_and_removed(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/add/device")
    page = await reader.submit("/add/device", name="node0 8", type="physicalnode")
    assert page.status == 422
    assert page.form("/add/device").fields["name"] == "node0 8"
    page = await reader.submit("/add/device", name="node008")
    assert "device[node008] is staged as new" in page.text
    await reader.submit("/edit/device/node008", f__category="default", f__ip="10.141.0.8")
    await reader.get("/show/category/default")
    page = await reader.submit("/clone/category/default", name="copied")
    assert page.form("/edit/category/copied").fields["f.software_image"] == "default-image"
    await reader.get("/show/device/node007")
    await reader.submit("/remove/device/node007")
    page = await reader.get("/changes")
    for words in ("added device[node008]", "added category[copied]", "removed device[node007]", "node007"):
        assert words in page.text
    await reader.submit("/changes/commit", message="")
    tree = place.head.tree
    assert tree.get(("device", "node008")).values == {"category": "default", "ip": "10.141.0.8"}
    assert tree.find("category", "copied") is not None
    assert tree.find("device", "node007") is None


async def test_a_role_is_added_by_its_name_and_an_unknown_one_is_refused_with_those_there_are(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/add/category/default/roles")
    page = await reader.submit("/add/category/default/roles", name="dockr::host")
    assert page.status == 422
    assert "Docker::Host" in page.text
    page = await reader.submit("/add/category/default/roles", name="docker::host")
    assert "category[default]->roles[Docker::Host] is staged as new" in page.text


async def test_lists_without_names_are_edited_by_their_numbers(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/add/category/default/roles")
    await reader.submit("/add/category/default/roles", name="firewall")
    place_of = "category/default/roles/firewall/open_ports"
    await reader.get(f"/show/{place_of}")
    page = await reader.submit(f"/add/{place_of}")
    page = await reader.submit(f"/edit/{place_of}/0", f__address="10.0.0.0/8")
    assert page.status == 422
    assert "a rule needs one" in page.text
    page = await reader.submit(f"/edit/{place_of}/0", f__port="443")
    assert page.status == 200
    assert "Port: 443" in (await reader.get("/changes")).text
    await reader.submit("/changes/commit", message="https")
    rules = place.head.tree.get(("category", "default", "roles", "firewall")).below("open_ports")
    assert rules["0"].values == {"port": "443", "address": "10.0.0.0/8"}


async def test_extra_parameters_are_set_and_taken_away(place: Place) -> None:
    reader = await place.reader()
    await stage(reader, "device/node001", extra__name="rack", extra__value="B 7")
    assert (await reader.get("/show/device/node001")).every("Parameter")[-1] == {"Parameter": "rack", "Value": "B 7"}
    await reader.get("/changes")
    await reader.submit("/changes/commit", message="")
    assert place.head.tree.get(("device", "node001")).extras == {"rack": "B 7"}
    await stage(reader, "device/node001", x__rack="")
    assert "rack B 7" in (await reader.get("/changes")).text


async def test_a_stale_commit_names_the_other_and_what_to_do(place: Place) -> None:
    reader = await place.reader("operator")
    await stage(reader, KUBELET, f__max_pods="250")
    session = place.head.session()
    session.set(("configurationoverlay", "kube-default-worker"), "priority", "505")
    await commit_session(place.head, session, "alice", "meanwhile")
    page = await reader.get("/changes")
    assert "was changed by alice in revision 2 since you started editing" in page.text
    assert "Priority 500 (default) → 505" in page.text
    page = await reader.submit("/changes/commit", message="mine")
    assert page.status == 409
    assert "Nothing was committed." in page.text
    assert "alice in revision 2" in page.text
    assert max_pods(place) is None
    page = await reader.submit("/changes/commit", message="mine", force="yes")
    assert "Revision 3 is committed" in page.text
    assert max_pods(place) == 250


async def test_a_stale_edit_can_be_dropped_for_the_others_version(place: Place) -> None:
    reader = await place.reader()
    await stage(reader, "device/node001", f__notes="mine")
    session = place.head.session()
    session.set(("device", "node001"), "notes", "theirs")
    await commit_session(place.head, session, "alice")
    await reader.get("/changes")
    await reader.submit("/changes/drop")
    assert "theirs" in (await reader.get("/show/device/node001")).text


async def test_a_form_that_grew_old_is_shown_again_with_what_was_typed(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/edit/device/node001")
    session = place.head.session()
    session.set(("device", "node001"), "notes", "theirs")
    await commit_session(place.head, session, "alice")
    page = await reader.submit("/edit/device/node001", f__ip="10.141.0.77")
    assert page.status == 409
    assert page.form("/edit/device/node001").fields["f.ip"] == "10.141.0.77"
    assert "was changed since this form was opened" in page.text


async def test_an_undo_that_conflicts_names_the_later_revision_and_can_be_forced(place: Place) -> None:
    for text in ("one", "two"):
        session = place.head.session()
        session.set(("device", "node001"), "notes", text)
        await commit_session(place.head, session, "alice", text)
    reader = await place.reader()
    page = await reader.get("/history/2/undo")
    assert "revision 3 of alice changed device.node001.notes after revision 2" in page.text
    assert "undo 3 first" in page.text
    page = await reader.submit("/history/2/undo")
    assert page.status == 409
    assert place.head.revision == 3
    page = await reader.submit("/history/2/undo", force="yes")
    assert "undone by revision 4" in page.text
    assert "notes" not in place.head.tree.get(("device", "node001")).values


async def test_the_plan_of_very_many_nodes_waits_until_it_is_asked_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_MOST_NODES", 3)
    reader = await place.reader()
    await stage(reader, KUBELET, f__max_pods="250")
    page = await reader.get("/changes")
    assert "nodes may change" in page.text
    assert "?plan=whole" in page.links()
    page = await reader.get("/changes?plan=whole")
    assert "node004..node007 4 nodes" in page.text


async def test_a_file_shows_what_a_commit_would_change_in_it(place: Place) -> None:
    reader = await place.reader()
    await stage(reader, KUBELET, f__max_pods="250")
    page = await reader.get("/changes")
    way = next(way for way in page.links() if way.startswith("/changes/file"))
    page = await reader.get(way)
    assert any("250" in line and line.startswith("+") for line in _lines(page.html))
    await reader.get("/changes")
    await reader.submit("/changes/commit", message="")
    page = await reader.get("/history/2")
    page = await reader.get(next(way for way in page.links() if way.startswith("/history/2/file")))
    assert any("250" in line and line.startswith("+") for line in _lines(page.html))


def _lines(html: str) -> list[str]:
    return [part.split(">", 1)[1].split("<")[0] for part in html.split("<span class=")[1:] if ">" in part]


async def test_a_secret_is_in_no_page_before_and_after_its_commit(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    reader = await place.reader()
    await stage(reader, "kubernetes/default", f__kube_ca_key=SECRET)
    seen = [
        "/changes",
        "/show/kubernetes/default",
        "/edit/kubernetes/default",
        "/show/kubernetes",
        f"/search?q={SECRET[:7]}",
        "/events",
        "/history",
        "/",
    ]
    for address in seen:
        page = await reader.get(address)
        assert SECRET not in page.html.replace(f"q={SECRET[:7]}", ""), address
    shown = {row["Parameter"]: row["Value"] for row in (await reader.get(seen[1])).every("Parameter")}
    assert (shown["Kube CA Key"], shown["Kube CA Cert"]) == ("*****", "< not set >")
    assert "No object matches" in (await reader.get("/search?q=*****")).text
    await reader.get("/changes")
    assert "Kube CA Key not set → secret" in reader.page.text
    await reader.submit("/changes/commit", message="a key")
    for address in [*seen, "/history/2", "/history/2/undo", "/show/kubernetes/default?at=2"]:
        assert SECRET not in (await reader.get(address)).html, address
    assert SECRET not in caplog.text
    held = place.head.tree.get(("kubernetes", "default")).values["kube_ca_key"]
    assert isinstance(held, Secret)
    assert held.reveal() == SECRET


async def test_an_empty_secret_keeps_what_is_there_and_a_box_takes_it_away(place: Place) -> None:
    reader = await place.reader()
    await stage(reader, "kubernetes/default", f__kube_ca_key=SECRET)
    await stage(reader, "kubernetes/default", f__notes="words")
    await reader.get("/changes")
    await reader.submit("/changes/commit", message="")
    held = place.head.tree.get(("kubernetes", "default")).values["kube_ca_key"]
    assert isinstance(held, Secret)
    await stage(reader, "kubernetes/default", clear__kube_ca_key="yes")
    await reader.get("/changes")
    assert "Kube CA Key secret → not set" in reader.page.text
    await reader.submit("/changes/commit", message="")
    assert "kube_ca_key" not in place.head.tree.get(("kubernetes", "default")).values


async def test_a_key_of_many_lines_is_kept_to_the_letter(place: Place) -> None:
    key = "-----BEGIN KEY-----\nabc\n-----END KEY-----\n"
    reader = await place.reader()
    await stage(reader, "kubernetes/default", f__kube_ca_key=key.replace("\n", "\r\n"), f__kubeadm_cert_key="word\r\n")
    await reader.get("/changes")
    await reader.submit("/changes/commit", message="")
    values = place.head.tree.get(("kubernetes", "default")).values
    held = [values[name] for name in ("kube_ca_key", "kubeadm_cert_key")]
    assert [one.reveal() for one in held if isinstance(one, Secret)] == [key, "word"]


async def test_a_form_with_errors_does_not_give_back_a_secret(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/edit/kubernetes/default")
    page = await reader.submit("/edit/kubernetes/default", f__kube_ca_key=SECRET, f__external_port="many")
    assert page.status == 422
    assert SECRET not in page.html
    assert "Secrets must be typed again" in page.text


async def test_a_form_is_in_groups_and_what_is_wrong_is_linked_and_unfolded(place: Place) -> None:
    reader = await place.reader()
    page = await reader.get("/edit/kubernetes/default")
    for words in ("Identity", "Network", "Control plane", "Certificates", "Cluster API"):
        assert f"<h2>{words}</h2>" in page.html
    assert '<details class="group"><summary><h2>External cluster</h2>' in page.html
    assert "/show/etcd/kube-default" in page.links()
    page = await reader.submit("/edit/kubernetes/default", f__external_port="many")
    assert page.status == 422
    assert '<details class="group"><summary><h2>External cluster</h2>' not in page.html
    assert "#f.external_port" in page.links()
    assert "f.external_port" in {attributes.get("id") for _, attributes in page.elements}


async def test_boxes_are_ticked_and_unticked(place: Place) -> None:
    reader = await place.reader()
    address = "configurationoverlay/kube-default-worker"
    path = ("configurationoverlay", "kube-default-worker")
    await stage(reader, address, f__categories="\ngpu-nodes\ndefault")
    await reader.get("/changes")
    await reader.submit("/changes/commit", message="")
    assert place.head.tree.get(path).values["categories"] == ("gpu-nodes", "default")
    page = await reader.get(f"/edit/{address}")
    assert page.form(f"/edit/{address}").fields["f.categories"] == "\ngpu-nodes\ndefault"
    await stage(reader, address, f__categories="")
    await reader.get("/changes")
    await reader.submit("/changes/commit", message="")
    assert "categories" not in place.head.tree.get(path).values
