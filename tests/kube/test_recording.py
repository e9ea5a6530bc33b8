"""Dry run: nothing is written, everything is recorded, and callers get answers as if."""

from __future__ import annotations

import pytest
from tests.kube.scripted import Answer, Asked, node, serving, status

from bedplate.api import auth
from bedplate.api.resources import CONFIG_MAPS, NODES, SECRETS, TOKEN_REVIEWS
from bedplate.kube import ClientConfig, PatchType, errors, subresources
from bedplate.kube.recording import Mode, RecordingClient


def echo(asked: Asked) -> Answer:
    return Answer(200, node("a"))


async def write_everything(client: RecordingClient) -> None:
    await client.create(NODES, {"metadata": {"name": "a"}})
    await client.patch(NODES, "a", {"metadata": {"labels": {"x": "y"}}}, type=PatchType.MERGE, subresource="status")
    await client.patch(NODES, "a", {}, type=PatchType.APPLY, field_manager="me")
    await client.update(NODES, {"metadata": {"name": "a"}})
    await client.delete(NODES, "a", uid="u")
    await client.delete_collection(NODES, label_selector="a=b")
    await subresources.evict(client, "p", "n")


async def test_with_the_server_every_write_is_a_dry_run_there() -> None:
    async with serving(echo) as server, RecordingClient(ClientConfig(server.url, qps=-1)) as client:
        await write_everything(client)
        await client.get(NODES, "a")
        assert len(client.writes) == 7
    *writes, read = server.asked
    for asked in writes:
        assert asked.query["dryRun"] == "All"
        if asked.method == "DELETE":
            assert asked.json["dryRun"] == ["All"]
    assert "dryRun" not in read.query
    assert writes[4].json["preconditions"] == {"uid": "u"}


async def test_locally_no_write_leaves_the_process() -> None:
    async with serving(echo) as server, RecordingClient(ClientConfig(server.url, qps=-1), mode=Mode.LOCAL) as client:
        await write_everything(client)
        assert [write.method for write in client.writes] == [
            "POST",
            "PATCH",
            "PATCH",
            "PUT",
            "DELETE",
            "DELETE",
            "POST",
        ]
    assert {asked.method for asked in server.asked} == {"GET"}


async def test_locally_an_apply_creates_and_a_patch_of_nothing_fails_as_it_would() -> None:
    missing = status(404, "NotFound", name="a", kind="nodes")
    async with (
        serving([missing]) as server,
        RecordingClient(ClientConfig(server.url, qps=-1), mode=Mode.LOCAL) as client,
    ):
        applied = await client.patch(
            NODES, "a", {"metadata": {"labels": {"x": "y"}}}, type=PatchType.APPLY, field_manager="m"
        )
        assert (applied.name, applied.metadata.labels) == ("a", {"x": "y"})
        with pytest.raises(errors.NotFound):
            await client.patch(NODES, "a", {"metadata": {}})
        made = await client.create(CONFIG_MAPS, {"metadata": {"generateName": "x-"}}, "n")
        assert made.name.startswith("x-")


async def test_a_record_says_what_would_be_written_but_no_secret() -> None:
    async with serving(echo) as server, RecordingClient(ClientConfig(server.url, qps=-1)) as client:
        await client.patch(NODES, "a", {"spec": {"unschedulable": True}})
        await client.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": "hunter2"}}, "n")
        patch, secret = client.writes
    assert (patch.method, patch.resource, patch.name, patch.body) == (
        "PATCH",
        "nodes",
        "a",
        {"spec": {"unschedulable": True}},
    )
    assert (secret.namespace, secret.name, secret.body) == ("n", "s", None)


async def test_a_review_is_a_question_and_goes_through() -> None:
    answer = Answer(201, {"kind": "TokenReview", "status": {"authenticated": True}})
    async with (
        serving([answer]) as server,
        RecordingClient(ClientConfig(server.url, qps=-1), mode=Mode.LOCAL) as client,
    ):
        review = await client.create(TOKEN_REVIEWS, auth.token_review("t"))
        assert review.status.authenticated
        assert not client.writes
    assert server.asked[0].method == "POST"
