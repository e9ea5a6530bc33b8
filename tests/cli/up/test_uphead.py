"""The head of `bedplate up` in this process: what it tells, what it remembers, what it survives."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.waiting import DEADLINE_S, until

from bedplate.cli.up import uphead
from bedplate.client import HeadClient
from bedplate.head.folder import datafolder


def client_of(data: Path, url: str) -> HeadClient:
    folder = datafolder.Folder.find(data)
    return HeadClient(url, token=folder.admin_token(), ca_file=str(folder.file("ca.crt")))


async def test_it_tells_where_it_is_and_serves_the_same_tree_there_again(tmp_path: Path) -> None:
    data = tmp_path / "head"
    async with uphead.serving(data) as head:
        url = head.picture().url
        assert any(url in line for line in head.lines())
        async with client_of(data, url) as client:
            node = await client.get("device", "node001")
            await client.put("device", "node001", {**node.values, "notes": "kept"}, type=node.type, base=node.revision)
        await until(lambda: head.picture().revision >= 3 and head.picture().devices >= 21)
    async with uphead.serving(data) as head, client_of(data, head.picture().url) as client:
        assert head.picture().url == url
        assert (await client.get("device", "node001")).values["notes"] == "kept"


async def test_devices_that_are_refused_do_not_end_what_else_runs(tmp_path: Path) -> None:
    data = tmp_path / "head"
    async with uphead.serving(data) as head, client_of(data, head.picture().url) as client:
        (token,) = await client.tokens()
        # Nobody takes away the token they ask with.
        other = (await client.create_token("admin")).token
        folder = datafolder.Folder.find(data)
        async with HeadClient(head.picture().url, token=other, ca_file=str(folder.file("ca.crt"))) as asking:
            await asking.revoke_token(token.id)
        async with asyncio.timeout(DEADLINE_S):
            await head.run()
