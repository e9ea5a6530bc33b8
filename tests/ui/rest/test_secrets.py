"""A secret is in no log, event, diff, export or answer, whether it was staged, planned, refused or committed."""

from __future__ import annotations

import asyncio
import io

import aiohttp
import pytest
from tests.ui.rest.serving import CA_KEY, Served
from tests.waiting import until

from bedplate.api import headapi
from bedplate.client import Event, HeadClient
from bedplate.core import errors

STAGED = "staged-and-never-committed-5f2e"
COMMITTED = "committed-9ab1"
TOKEN = "a-Token-an-admin-wrote-77c0"


async def test_no_secret_leaves_the_head(
    log: io.StringIO, server: Served, client: HeadClient, http: aiohttp.ClientSession
) -> None:
    events: list[Event] = []

    async def listen() -> None:
        async for event in client.events(after=1):
            events.append(event)  # noqa: PERF401

    listening = asyncio.create_task(listen())
    try:
        said = await _do_everything(client, http)
        await until(lambda: any(event.revision is not None and event.revision.number == 4 for event in events))
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    for secret in (STAGED, COMMITTED, TOKEN, CA_KEY):
        assert secret not in "".join(said)
        assert secret not in repr(events)
        assert secret not in log.getvalue()
    assert "*****" in "".join(said)
    stored = [entry.value for entry in (await server.store.list("/")).entries]
    assert not any(secret.encode() in value for value in stored for secret in (COMMITTED, TOKEN, CA_KEY))


async def _do_everything(client: HeadClient, http: aiohttp.ClientSession) -> list[str]:
    """Stage, plan, fail and commit secrets, and read everything there is; all that was answered."""
    said: list[str] = []
    held = await client.get("kubernetes", "default")
    base = {"values": {**held.values, "kube_ca_key": STAGED}, "children": held.children}
    edit = {"mode": "kubernetes", "key": "default", "base": 1, "object": base}
    broken = {**edit, "object": {**base, "values": {**base["values"], "etcd_cluster": "none"}}}
    wrong = {**edit, "object": {**base, "values": {**base["values"], "nothing": STAGED}}}
    for path, body in (
        ("/api/v1/commits", {"edits": [edit], "dryRun": True}),
        ("/api/v1/plan", {"edits": [edit]}),
        ("/api/v1/commits", {"edits": [broken]}),
        ("/api/v1/commits", {"edits": [{**edit, "base": 0}]}),
        ("/api/v1/commits", {"edits": [wrong]}),
    ):
        async with http.post(path, json=body) as answer:
            said.append(await answer.text())
    await client.put(
        "kubernetes",
        "default",
        {**held.values, "kube_ca_key": COMMITTED},
        children=held.children,
        message="a key",
        replace=True,
    )
    await client.put("user", "arno", {"token": TOKEN}, replace=True)
    await client.undo(2)
    for path in (
        "/api/v1/tree",
        "/api/v1/tree?at=2",
        "/api/v1/objects/kubernetes",
        "/api/v1/objects/user/arno",
        "/api/v1/revisions",
        "/api/v1/revisions/2",
        "/api/v1/audit",
        "/api/v1/export",
        "/api/v1/plan?from=0",
        "/api/v1/nodes/node001/explain",
        "/api/v1/notices",
        "/api/v1/events?after=0&wait=1",
        "/metrics",
    ):
        async with http.get(path) as answer:
            assert answer.status == 200, path
            said.append(await answer.text())
    async with http.post("/api/v1/revisions/3/undo", json={"dryRun": True}) as answer:
        said.append(await answer.text())
    return said


async def test_the_desired_state_shows_secret_files_to_the_node_alone(server: Served) -> None:
    async with server.client() as admin:
        whole = await admin.desired("node001")
    async with server.client("arno") as arno:
        masked = await arno.desired("node001")
    async with server.client("node001") as node:
        own = await node.desired("node001")
    assert whole is not None
    assert masked is not None
    assert own is not None
    assert own == whole
    assert [file.path for file in masked.state.files] == [file.path for file in own.state.files]
    for file, shown in zip(own.state.files, masked.state.files, strict=True):
        assert shown.content == (headapi.MASK if file.secret else file.content)


async def test_a_user_may_use_the_token_an_administrator_wrote(server: Served, client: HeadClient) -> None:
    await client.put("user", "arno", {"token": TOKEN}, replace=True)
    async with HeadClient(server.url, token=TOKEN) as arno:
        assert (await arno.whoami()).user == "arno"
    with pytest.raises(errors.Denied):
        async with HeadClient(server.url, token=headapi.MASK) as nobody:
            await nobody.whoami()
