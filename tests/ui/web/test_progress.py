"""How far nodes are, on the page: the roll-out and what people do with it, pending changes, and what is told live."""

from __future__ import annotations

import asyncio

import pytest
from tests.ui.web.conftest import Place
from tests.ui.web.reading import Reader
from tests.ui.web.test_events import opened
from tests.waiting import DEADLINE_S

from bedplate.api.headapi import Failure, Result
from bedplate.head.fleet import Fleet
from bedplate.head.policy import Identity
from bedplate.head.rollout import Batches
from bedplate.head.session import Edit
from bedplate.ui.web.logins import IDLE_S

NODES = ("node001", "node002", "node003", "node004", "node007")
"""Those of the category `default`."""
FAILURE = Failure(kind="file", name="/etc/x", verb="written", text="no space left")


def fleet_of(place: Place) -> Fleet:
    assert place.service.fleet is not None
    return place.service.fleet


async def apply(place: Place, *names: str) -> None:
    """Nodes are what they should be now, and say so."""
    for name in names:
        state = fleet_of(place).wants.state(name)
        await place.service.health.record(name, applied=state.revision, digest=state.digest)


async def change(place: Place, batches: Batches | None = None) -> None:
    category = place.head.tree.get(("category", "default"))
    edits = [Edit("category", "default", category, category.with_value("software_image", "my-new-image"))]
    rollouts, anna = fleet_of(place).rollouts, Identity.local("anna")

    async def commit(**options: object) -> object:
        return await place.head.commit_as(anna, edits, "another image", **options)  # type: ignore[arg-type]

    await (commit() if batches is None else rollouts.committed(batches, "anna", commit))  # type: ignore[arg-type]


def stands(page_rows: list[dict[str, str]]) -> dict[str, str]:
    return {row["Node"]: row["State"] for row in page_rows}


async def staged(place: Place, user: str = "admin") -> Reader:
    reader = await place.reader(user)
    await reader.get("/edit/category/default")
    await reader.submit("/edit/category/default", f__software_image="my-new-image")
    await reader.get("/changes")
    return reader


async def test_a_commit_in_batches_is_paused_resumed_and_undone_on_the_page(place: Place) -> None:
    await apply(place, *NODES)
    reader = await staged(place)
    assert "There was no roll-out yet" in (await reader.get("/rollout")).text
    await reader.get("/changes")
    page = await reader.submit("/changes/commit", batch="2", message="for two first")
    assert "Revision 2 is committed." in page.text and "2 of 5 nodes have it, 2 at a time" in page.text
    assert stands(page.rows("Node")) == {
        **dict.fromkeys(NODES[:2], "pending"),
        **dict.fromkeys(NODES[2:], "held"),
    }
    page = await reader.submit("/rollout/pause")
    assert "The roll-out of revision 2 is paused." in page.text and "Paused by admin." in page.text
    await apply(place, *NODES)
    await fleet_of(place).rollouts.look()
    assert stands((await reader.get("/rollout")).rows("Node"))["node001"] == "applied"
    await reader.submit("/rollout/resume")
    await place.clock.advance(1)
    for _ in range(3):
        await fleet_of(place).rollouts.look()
        await place.clock.advance(30)
    assert "4 of 5 nodes have it" in (await reader.get("/rollout")).text
    page = await reader.submit("/rollout/undo")
    assert "The roll-out of revision 2 is undone." in page.text and "Undone by admin." in page.text
    assert place.head.revision == 3
    assert [form.action for form in page.forms if "rollout" in form.action] == []


async def test_a_roll_out_that_a_node_stops_says_which_and_why(place: Place) -> None:
    await apply(place, *NODES)
    await change(place, Batches("2"))
    await apply(place, "node001")
    await place.service.health.record("node002", failures=[FAILURE], tried=2)
    await fleet_of(place).rollouts.look()
    reader = await place.reader()
    page = await reader.get("/rollout")
    assert page.rows("Node")[0] == {
        "Node": "node002",
        "State": "failed",
        "Why": "File /etc/x could not be written: no space left",
    }
    assert "Now stopped" in page.text and "Go on all the same" in page.text
    overview = await reader.get("/")
    assert "Roll-out of revision 2 stopped" in overview.text
    assert "node002 failed File /etc/x could not be written" in overview.text
    await reader.get("/rollout")
    await reader.submit("/rollout/resume")
    assert "Now running" in (await reader.get("/rollout")).text


@pytest.mark.parametrize("batch", ["0", "x", "101%", "<b>"])
async def test_a_size_that_is_none_commits_nothing_and_stays_in_the_form(place: Place, batch: str) -> None:
    reader = await staged(place)
    page = await reader.submit("/changes/commit", batch=batch, message="kept")
    assert page.status == 409 and "batch: " in page.text
    assert page.form("/changes/commit").fields["batch"] == batch
    assert page.form("/changes/commit").fields["message"] == "kept"
    assert place.head.revision == 1 and fleet_of(place).rollouts.current is None


async def test_a_second_roll_out_is_refused_with_what_can_be_done(place: Place) -> None:
    await apply(place, *NODES)
    reader = await staged(place)
    category = place.head.tree.get(("category", "gpu-nodes"))
    edit = Edit("category", "gpu-nodes", category, category.with_value("software_image", "my-new-image"))

    async def commit(**options: object) -> object:
        return await place.head.commit_as(Identity.local("anna"), [edit], **options)  # type: ignore[arg-type]

    await fleet_of(place).rollouts.committed(Batches("1"), "anna", commit)  # type: ignore[arg-type]
    await reader.get("/changes")
    page = await reader.submit("/changes/commit", batch="2")
    assert page.status == 409 and "revision 2 is being rolled out" in page.text
    assert "rollout resume or undo ends it" in page.text
    await reader.get("/changes")
    assert "Revision 3 is committed." in (await reader.submit("/changes/commit")).text


async def test_those_who_only_read_are_offered_nothing_and_refused(place: Place) -> None:
    await apply(place, *NODES)
    await change(place, Batches("2"))
    reader = await place.reader("auditor")
    page = await reader.get("/rollout")
    assert page.rows("Node") and not [form for form in page.forms if "rollout" in form.action]
    token = page.forms[-1].fields["form_token"]
    for action in ("pause", "resume", "undo"):
        assert (await reader.post(f"/rollout/{action}", {"form_token": token})).status == 403
    assert (await reader.post("/rollout/erase", {"form_token": token})).status in (404, 405)
    current = fleet_of(place).rollouts.current
    assert current is not None and current.state == "running"


async def test_what_is_done_twice_is_told_and_harms_nothing(place: Place) -> None:
    await apply(place, *NODES)
    await change(place, Batches("2"))
    one, other = await place.reader(), await place.reader("operator")
    await one.get("/rollout")
    await other.get("/rollout")
    await one.submit("/rollout/pause")
    assert "the roll-out is paused already" in (await other.submit("/rollout/pause")).text
    await one.get("/rollout")
    await other.get("/rollout")
    await one.submit("/rollout/undo")
    assert "no roll-out is under way" in (await other.submit("/rollout/undo")).text
    assert place.head.revision == 3


async def test_a_device_shows_what_is_pending_with_the_lines_of_its_files(place: Place) -> None:
    reader = await place.reader()
    assert "No agent has reported for this node." in (await reader.get("/show/device/node004")).text
    await apply(place, "node004")
    assert "The node is what it should be." in (await reader.get("/show/device/node004")).text
    session = place.head.session()
    session.set(("configurationoverlay", "kube-default-worker", "roles", "kubelet"), "maxpods", "42")
    await place.head.commit_as(Identity.local("anna"), session.edits())
    page = await reader.get("/show/device/node004")
    names = [row["Name"] for row in page.rows("And then")]
    assert "/etc/kubernetes/kubelet.env" in names
    way = next(link for link in page.links() if link.startswith("/pending/file"))
    file = await reader.get(way)
    assert "- KUBELET_EXTRA_ARGS=--max-pods=110" in file.text and "+ KUBELET_EXTRA_ARGS=--max-pods=42" in file.text
    await place.service.health.record("node004", failures=[FAILURE], tried=2)
    assert "could not be written: no space left" in (await reader.get("/show/device/node004")).text
    rows = {row["Machine"]: row["Applied"] for row in (await reader.get("/health")).rows("Applied")}
    assert (rows["node004"], rows["node001"]) == ("1 failed", "")
    for strange in ("/pending/file?node=nobody&path=/etc/x", "/pending/file?node=node004&path=/etc/passwd"):
        assert (await reader.get(strange)).status == 404


async def test_a_node_that_is_held_back_says_so(place: Place) -> None:
    await apply(place, *NODES)
    await change(place, Batches("2"))
    reader = await place.reader()
    assert "waits for its batch of the roll-out" in (await reader.get("/show/device/node007")).text
    rows = {row["Machine"]: row["Applied"] for row in (await reader.get("/health")).rows("Applied")}
    assert (rows["node007"], rows["node001"]) == ("1 held", "1 pending")


async def test_a_revision_tells_how_far_its_nodes_are(place: Place) -> None:
    await apply(place, *NODES[:3])
    await change(place)
    await apply(place, "node001")
    reader = await place.reader()
    page = await reader.get("/history/2")
    assert "1 of 5 have applied it" in page.text
    assert stands(page.rows("Has")) == {
        "node002": "pending",
        "node003": "pending",
        "node004": "UNKNOWN",
        "node007": "UNKNOWN",
    }
    part = await reader.get("/history/2/progress")
    assert "<html" not in part.html and stands(part.rows("Has")) == stands(page.rows("Has"))
    assert (await reader.get("/history/77/progress")).status == 404
    await apply(place, *NODES)
    assert "5 of 5 have applied it" in (await reader.get("/history/2")).text
    assert "node002,node003" in (await _behind_after(place, reader)).text


async def _behind_after(place: Place, reader: Reader) -> object:
    session = place.head.session()
    for name in ("node002", "node003"):
        session.set(("device", name), "category", "gpu-nodes")
    await place.head.commit_as(Identity.local("anna"), session.edits())
    return await reader.get("/")


async def test_open_pages_are_told_that_nodes_move_on_but_not_by_every_report(place: Place) -> None:
    reader = await place.reader("auditor")
    stream = await opened(reader)
    while not place.service.health.listeners:
        await asyncio.sleep(0.01)
    await apply(place, "node001")
    kind, data, _ = await stream.next()
    assert (kind, data) == ("progress", {"nodes": 1})
    await apply(place, "node001")
    await place.service.health.record("node001", [Result("disk", "PASS")])
    assert (await stream.next())[0] == "health", "it holds what it held"
    await apply(place, *NODES)
    async with asyncio.timeout(DEADLINE_S):
        while (waiting := asyncio.ensure_future(stream.next())) and not waiting.done():
            await asyncio.wait([waiting], timeout=0.02)
            await place.clock.advance(1)
            if waiting.done():
                break
    assert waiting.result()[:2] == ("progress", {"nodes": 4}), "together, after a second"
    stream._response.close()


async def test_a_page_that_renews_itself_neither_keeps_a_login_nor_takes_its_messages(place: Place) -> None:
    reader = await place.reader()
    renewal = {"Bedplate-Renewal": "yes"}
    await place.clock.advance(IDLE_S - 10)
    async with reader.client.get("/", headers=renewal, allow_redirects=False) as answer:
        assert answer.status == 200
    await place.clock.advance(20)
    async with reader.client.get("/", headers=renewal, allow_redirects=False) as answer:
        assert answer.status == 303, "nobody was there"
    reader = await staged(place)
    token = reader.page.form("/changes/commit").fields["form_token"]
    async with reader.client.post("/changes/drop", data={"form_token": token}, allow_redirects=False) as answer:
        assert answer.status == 303
    async with reader.client.get("/changes", headers=renewal) as answer:
        assert "is discarded" not in await answer.text()
    assert "is discarded" in (await reader.get("/changes")).text
