"""Commits, plans, history and exchange over HTTP."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
import yaml
from tests.ui.rest.serving import CA_KEY, Served

from bedplate.api import headapi
from bedplate.client import HeadClient, Stale
from bedplate.core import errors
from bedplate.head.objects import Secret


def noted(text: str, base: int | None = 1, key: str = "default") -> headapi.Edit:
    return headapi.Edit(mode="category", key=key, base=base, object={"values": {"notes": text}})


def secret_of(server: Served, name: str = "kube_ca_key") -> str:
    held = server.head.tree.get(("kubernetes", "default")).values[name]
    assert isinstance(held, Secret)
    return held.reveal()


async def kubernetes(client: HeadClient, **values: str) -> headapi.Edit:
    """The cluster as the client sees it, with other values."""
    held = await client.get("kubernetes", "default")
    return headapi.Edit(
        mode="kubernetes",
        key="default",
        base=held.revision,
        object={"values": {**held.values, **values}, "children": held.children},
    )


async def test_edits_of_several_objects_are_one_revision(client: HeadClient, server: Served) -> None:
    made = await client.commit(
        [
            noted("a"),
            headapi.Edit(mode="category", key="new", object={}),
            headapi.Edit(mode="device", key="node007", base=1),
        ],
        "three at once",
    )
    assert made is not None
    assert (made.number, made.author, made.message) == (2, "admin", "three at once")
    assert [tuple(change.path) for change in made.changes] == [
        ("category", "default", "notes"),
        ("category", "default", "software_image"),
        ("category", "new"),
        ("device", "node007"),
    ]
    assert server.head.revision == 2


async def test_edits_that_change_nothing_make_no_revision(client: HeadClient, server: Served) -> None:
    same = headapi.Edit(mode="category", key="default", base=1, object={"values": {"software_image": "default-image"}})
    assert await client.commit([same]) is None
    assert await client.commit([]) is None
    assert server.head.revision == 1


async def test_a_dry_run_says_what_would_change_and_changes_nothing(client: HeadClient, server: Served) -> None:
    found = await client.check([await kubernetes(client, notes="x", kubeadm_cert_key="tell-nobody")])
    told = {one.path[-1]: (one.old, one.new) for one in found}
    assert told == {"notes": (None, "x"), "kubeadm_cert_key": (None, headapi.MASK)}
    assert server.head.revision == 1
    with pytest.raises(errors.Invalid):
        await client.check([headapi.Edit(mode="category", key="default", base=1)])


async def test_a_stale_commit_names_the_other_and_force_overwrites(server: Served) -> None:
    async with server.client("admin") as anna, server.client("olga") as olga:
        await olga.commit([noted("olga's")], "mine")
        with pytest.raises(Stale) as refused:
            await anna.commit([noted("anna's")])
        assert (refused.value.author, refused.value.revision) == ("olga", 2)
        made = await anna.commit([noted("anna's")], force=True)
        assert made is not None
        assert made.number == 3
        await olga.commit([noted("olga's", base=3, key="default")])
        await olga.delete("device", "node007")
        with pytest.raises(Stale, match="removed by olga"):
            await anna.commit([headapi.Edit(mode="device", key="node007", base=1, object={"type": "PhysicalNode"})])


async def test_a_commit_whose_answer_was_lost_is_answered_again(client: HeadClient, server: Served) -> None:
    first = await client.commit([noted("x")], nonce="n-1")
    again = await client.commit([noted("x")], nonce="n-1")
    assert first is not None
    assert again is not None
    assert (again.number, again.nonce) == (first.number, "n-1")
    async with server.client("olga") as olga:
        other = await olga.commit([noted("y", base=2)], nonce="n-1")
    assert other is not None
    assert other.number == 3, "another author's nonce is another one"
    assert server.head.revision == 3


async def test_concurrent_commits_with_one_nonce_make_one_revision(client: HeadClient, server: Served) -> None:
    edit = headapi.Edit(mode="category", key="new", object={})
    made = await asyncio.gather(*(client.commit([edit], nonce="same") for _ in range(8)))
    assert {one.number for one in made if one is not None} == {2}
    assert len(made) == 8
    assert server.head.revision == 2


async def test_one_object_is_edited_once_in_a_commit(client: HeadClient) -> None:
    with pytest.raises(errors.Invalid, match="twice"):
        await client.commit([noted("a"), noted("b")])


async def test_a_plan_shows_what_nodes_would_do(client: HeadClient, server: Served) -> None:
    held = await client.get("configurationoverlay", "kube-default-worker")
    edit = headapi.Edit(
        mode=held.mode,
        key=held.key,
        base=held.revision,
        object={"values": {**held.values, "nodes": []}, "children": held.children},
    )
    planned = await client.plan([edit])
    assert {one.node for one in planned.actions} == {"node005", "node006"}
    assert {(one.kind, one.name, one.verb) for one in planned.actions} >= {("role", "kubelet", "remove")}
    await client.commit([edit])
    past = await client.plan_between(1, 2)
    assert {(one.node, one.kind, one.name, one.verb) for one in past.actions} == {
        (one.node, one.kind, one.name, one.verb) for one in planned.actions
    }
    with pytest.raises(errors.Invalid):
        await client.plan([headapi.Edit(mode="category", key="default", base=1)])


async def test_history_is_read_in_parts_and_by_path(client: HeadClient) -> None:
    for number in range(5):
        await client.put("category", "default", {"notes": str(number)}, replace=True)
    await client.delete("device", "node007")
    assert [one.number for one in await client.revisions(3)] == [7, 6, 5]
    assert [one.number for one in await client.revisions(3, before=5)] == [4, 3, 2]
    assert [one.number for one in await client.revisions(path=("device", "node007"))] == [7, 1]
    assert (await client.revision(7)).changes[0].path == ("device", "node007")
    audit = await client.audit(("category", "default", "notes"), limit=2)
    assert [(one.revision, one.old, one.new) for one in audit] == [(6, "3", "4"), (5, "2", "3")]
    with pytest.raises(errors.NotFound):
        await client.revision(8)


async def test_an_undo_is_a_revision_and_is_done_once(client: HeadClient, server: Served) -> None:
    await client.put("category", "default", {"notes": "x"}, replace=True)
    assert [one.path for one in await client.undo_changes(2)] == [
        ("category", "default", "notes"),
        ("category", "default", "software_image"),
    ]
    made = await client.undo(2, "back", nonce="u")
    again = await client.undo(2, "back", nonce="u")
    assert made is not None
    assert again is not None
    assert (made.number, made.undoes, again.number) == (3, 2, 3)
    assert (await client.get("category", "default")).values == {"software_image": "default-image"}
    with pytest.raises(errors.Conflict, match="undone by revision 3"):
        await client.undo(2)
    assert server.head.revision == 3


async def test_an_undo_that_was_staged_elsewhere_brings_the_secret_back(client: HeadClient, server: Served) -> None:
    made = await client.commit([await kubernetes(client, kube_ca_key="new-secret")])
    assert made is not None
    assert secret_of(server) == "new-secret"
    held = await client.get("kubernetes", "default")
    staged = headapi.Edit(
        mode="kubernetes",
        key="default",
        base=held.revision,
        object={"values": held.values, "children": held.children},
    )
    undone = await client.commit([staged], undoes=made.number)
    assert undone is not None
    assert undone.undoes == made.number
    assert secret_of(server) == CA_KEY


async def test_a_removed_object_comes_back_with_its_secrets(client: HeadClient, server: Served) -> None:
    for name in ("kube-default-master", "kube-default-worker"):
        await client.delete("configurationoverlay", name)
    held = await client.get("kubernetes", "default")
    await client.delete("kubernetes", "default")
    removed = server.head.revision
    again = headapi.Edit(mode="kubernetes", key="default", object={"values": held.values, "children": held.children})
    with pytest.raises(errors.Invalid, match="keeps a secret"):
        await client.commit([again])
    assert await client.commit([again], undoes=removed) is not None
    assert secret_of(server) == CA_KEY


async def test_what_is_exported_can_be_imported_and_is_the_same(client: HeadClient, server: Served) -> None:
    exported = await client.export()
    assert CA_KEY not in exported
    assert headapi.MASK not in exported
    document = yaml.safe_load(exported)
    document["category"]["more"] = {"type": "Category"}
    would = await client.import_(yaml.safe_dump(document), dry_run=True)
    assert [one.path for one in would.changes] == [("category", "more")]
    made = await client.import_(yaml.safe_dump(document), message="more")
    assert made.revision is not None
    assert (made.revision.number, made.revision.message) == (2, "more")
    assert secret_of(server) == CA_KEY, "what the document does not say stays"
    pruned = await client.import_(exported, prune=True)
    assert pruned.revision is not None
    assert await client.export() == exported
    assert await client.export(at=1) == exported
    assert CA_KEY in await client.export(with_secrets=True)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("a: [", "not YAML"),
        ("format: other\n", "not an export"),
        ("format: bedplate/head/v1\ncategory: {x: {values: {nothing: 1}}}\n", "cannot be imported"),
        ("format: bedplate/head/v1\nnothing: {}\n", "cannot be imported"),
        ("[" * 100_000, "max depth"),
        ("format: bedplate/head/v1\ncategory: {x: {type: " + "[" * 150 + "]" * 150 + "}}\n", "cannot be imported"),
        ("format: bedplate/head/v1\ncategory: {x: {values: {notes: " + "[" * 150 + "]" * 150 + "}}}\n", "imported"),
        ("format: bedplate/head/v1\na: &a [*a]\n", "contains itself"),
    ],
)
async def test_a_document_that_is_none_is_told(client: HeadClient, server: Served, document: str, words: str) -> None:
    with pytest.raises(errors.Invalid, match=words):
        await client.import_(document)
    assert server.head.revision == 1


async def test_a_document_that_is_no_text_is_told(http: aiohttp.ClientSession) -> None:
    async with http.post("/api/v1/import", data=b"\xff", headers={"Content-Type": "application/yaml"}) as answer:
        assert answer.status == 400
    async with http.post("/api/v1/import", data=b"{}", headers={"Content-Type": "application/json"}) as answer:
        assert answer.status == 415
