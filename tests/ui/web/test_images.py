"""The page of software images: trees with their nodes, transfers with how far they are, and how they ended."""

from __future__ import annotations

import pathlib

import pytest
from tests.agent.imaging import grow
from tests.ui.web.conftest import Place

from bedplate.api.headapi import ErrandState, ErrandTold, ImageAction, Transfer
from bedplate.head.images.serving import Transfers
from bedplate.head.images.trees import Trees
from bedplate.ui.web.images import ended, under_way

EVIL = '<script>alert(1)</script>"><img src=x>'


@pytest.fixture
async def placed(place: Place, tmp_path: pathlib.Path) -> Place:
    """The manual's site with a tree for the image of its nodes."""
    assert place.service.fleet is not None
    imaging = place.service.fleet.imaging
    imaging.transfers = Transfers(Trees(str(tmp_path / "images"), clock=place.clock, is_root=False))
    imaging.trees = imaging.transfers.trees
    grow(tmp_path / "images" / "default-image", {"/etc/os-release": "ID=test"})
    await imaging.act("default-image", ImageAction(action="adopt"), by="ann")
    return place


async def tell(place: Place, node: str, state: str, text: str) -> None:
    fleet = place.service.fleet
    assert fleet is not None
    (errand,) = [item for item in fleet.errands.transfers() if item.node == node]
    place.clock.jump(5)
    await fleet.errands.told(node, [ErrandTold(id=errand.id, state=state, text=text)])  # type: ignore[arg-type]


async def ask(place: Place, *nodes: str) -> None:
    fleet = place.service.fleet
    assert fleet is not None
    await fleet.imaging.ask(nodes, "imageupdate", Transfer(write=True), by="ann", lasts_s=600)


async def test_images_are_shown_with_their_nodes_and_what_is_wrong_with_a_tree(placed: Place) -> None:
    page = await (await placed.reader("auditor")).get("/images")
    assert page.status == 200 and "No image is being copied" in page.text and "Nothing was copied yet" in page.text
    assert "ready" in page.text and "node00" in page.text and "adopted by ann" in page.text
    assert "softwareimage adopt" in page.text or "grab a node" in page.text, "a tree that is not there has a remedy"


async def test_a_transfer_is_shown_with_how_far_it_is_and_then_with_its_end(placed: Place) -> None:
    reader = await placed.reader()
    await ask(placed, "node001", "node002")
    await tell(placed, "node001", "accepted", "57%")
    page = await reader.get("/images")
    assert [attributes["value"] for name, attributes in page.elements if name == "progress"] == ["57"]
    assert "waits for the node" in page.text
    assert [attributes["data-refresh"] for _, attributes in page.elements if "data-refresh" in attributes] == ["2"]
    await tell(placed, "node001", "done", "3 changed")
    await tell(placed, "node002", "failed", "the disk is full")
    page = await reader.get("/images")
    assert "1 failed" in page.text and page.text.index("the disk is full") < page.text.index("3 changed")
    assert not [name for name, _ in page.elements if name == "progress"]


async def test_what_a_node_says_about_a_transfer_is_text(placed: Place) -> None:
    reader = await placed.reader()
    await ask(placed, "node001")
    for state, text in (("accepted", f"5% {EVIL}"), ("failed", EVIL)):
        await tell(placed, "node001", state, text)
        page = await reader.get("/images")
        assert "<img" not in page.html and "<script>alert" not in page.html
        assert "alert(1)" in page.text


async def test_a_head_without_nodes_says_so(place: Place) -> None:
    object.__setattr__(place.service, "fleet", None)
    page = await (await place.reader()).get("/images")
    assert page.status >= 400 and "serves no nodes" in page.text


def errand(node: str, state: str, **more: object) -> ErrandState:
    return ErrandState(
        id=f"{node}{state}", node=node, kind="imageupdate", state=state, asked="1", until="2", by="ann",
        image="default-image", mode="update", write=True, **more,
    )  # type: ignore[arg-type]  # fmt: skip


def test_those_that_move_come_first_and_a_percentage_is_at_most_a_hundred() -> None:
    moves = under_way([errand("node010", "waiting"), errand("node009", "accepted", text="999%"),
                       errand("node002", "accepted", text="waits for the head")])  # fmt: skip
    found = [(move.errand.node, move.percent) for move in moves]
    assert found == [("node002", None), ("node009", 100), ("node010", None)]


def test_only_the_last_of_each_node_counts_and_failures_come_first() -> None:
    moves = ended(
        [
            errand("node001", "failed", changed="1"),
            errand("node001", "done", changed="2"),
            errand("node002", "done", changed="9"),
            errand("node003", "expired", changed="3"),
            errand("node004", "accepted", changed="4"),
        ]
    )
    assert [move.errand.node for move in moves] == ["node003", "node002", "node001"]
