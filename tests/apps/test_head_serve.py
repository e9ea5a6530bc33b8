"""The head's daemon as a process, over TLS: who gets in, what a restart keeps, what kill -9 cannot take."""

from __future__ import annotations

import asyncio
import json
import resource
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests import servers
from tests.apps import headprograms as heads
from tests.waiting import until

from bedplate.api import headapi
from bedplate.client import Forbidden, HeadClient, Unauthorized
from bedplate.core import errors
from bedplate.head.folder import backups
from bedplate.head.folder.datafolder import Folder, open_head

COMMITS = 40


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[heads.Served]:
    """One daemon that the tests share which do not stop it."""
    data = heads.init(tmp_path_factory.mktemp("head") / "site", "--nodes", "3")
    with heads.served(data) as running:
        yield running


@pytest.fixture
async def admin(site: heads.Served) -> AsyncIterator[HeadClient]:
    async with site.client() as opened:
        yield opened


async def ask(
    site: heads.Served,
    path: str,
    *,
    method: str = "GET",
    certificate: Path | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any, Any]:
    """Status, headers and body of one request, without any client of ours."""
    connector = aiohttp.TCPConnector(ssl=heads.trust(site.data, certificate))
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.request(method, site.url + path, json={} if method == "POST" else None) as got,
    ):
        body = await got.read()
        return got.status, got.headers, json.loads(body) if "json" in got.content_type else body.decode()


async def as_user(site: heads.Served, admin: HeadClient, name: str, role: str) -> HeadClient:
    """A client of a user that the tree has then."""
    await admin.put("user", name, {"role": role})
    made = await admin.create_token(name, "test")
    return HeadClient(site.url, token=made.token, ca_file=str(site.data / "ca.crt"))


# Getting in


async def test_the_certificate_is_the_sites_own_and_nobody_elses(site: heads.Served) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(f"{site.url}/healthz")
    status, _, text = await ask(site, "/healthz")
    assert (status, text) == (200, "ok")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/store"])
async def test_health_is_for_everybody(site: heads.Served, path: str) -> None:
    assert (await ask(site, path))[0] == 200


@pytest.mark.parametrize("path", ["/api/v1/whoami", "/api/v1/tree", "/metrics", "/api/v1/events"])
@pytest.mark.parametrize("credential", [None, "Bearer bph_0000000000_00", "Bearer", "Basic YTpi"])
async def test_strangers_are_sent_away_with_a_hint(site: heads.Served, path: str, credential: str | None) -> None:
    said = {"Authorization": credential} if credential else {}
    status, headers, body = await ask(site, path, headers=said)
    assert status == 401 and headers["WWW-Authenticate"].startswith("Bearer")
    assert headers["Content-Type"].startswith("application/problem+json")
    assert body["status"] == 401 and body["hint"] and body["detail"]


async def test_the_administrators_token_and_certificate_are_the_administrator(site: heads.Served) -> None:
    async with site.client() as client:
        by_token = await client.whoami()
    assert (by_token.user, by_token.role, by_token.head) == ("admin", "admin", "basecm10")
    status, _, body = await ask(site, "/api/v1/whoami", certificate=site.data / "admin.crt")
    assert status == 200 and body["user"] == "admin" and body["via"] == "certificate"


async def test_a_wrong_token_is_not_made_good_by_a_certificate(site: heads.Served) -> None:
    status, _, _ = await ask(
        site, "/api/v1/whoami", certificate=site.data / "admin.crt", headers={"Authorization": "Bearer bph_0_0"}
    )
    assert status == 401


async def test_another_sites_certificate_does_not_open_a_connection(site: heads.Served, tmp_path: Path) -> None:
    from bedplate.core.clock import SystemClock
    from bedplate.head.access import USERS
    from bedplate.head.folder import pki

    now = SystemClock().now()
    pki.Authority.make("elsewhere", now).client("admin", USERS, now).write(tmp_path, "admin")
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
        await ask(site, "/api/v1/whoami", certificate=tmp_path / "admin.crt")


async def test_the_metrics_say_what_the_head_is(site: heads.Served) -> None:
    token = (site.data / "admin.token").read_text().strip()
    status, _, text = await ask(site, "/metrics", headers={"Authorization": f"Bearer {token}"})
    assert status == 200
    assert "bedplate_head_active 1.0" in text and 'bedplate_head_objects{mode="device"} 4.0' in text
    assert 'bedplate_head_nodes{state="UNKNOWN"} 3.0' in text and "bedplate_head_revision" in text
    assert 'bedplate_head_certificate_expiration_timestamp_seconds{certificate="server"} 1' in text


async def test_an_auditor_reads_and_cannot_write(site: heads.Served, admin: HeadClient) -> None:
    async with await as_user(site, admin, "anna", "auditor") as anna:
        assert len(await anna.list("device")) >= 4
        with pytest.raises(Forbidden, match="auditor"):
            await anna.put("category", "anna", {})
        with pytest.raises(Forbidden):
            await anna.commit([headapi.Edit(mode="category", key="anna", object={})])
        with pytest.raises(Forbidden):
            await anna.create_token("anna")
    assert "anna" not in [one.key for one in await admin.list("category")]


async def test_an_operator_edits_all_but_users(site: heads.Served, admin: HeadClient) -> None:
    async with await as_user(site, admin, "olga", "operator") as olga:
        await olga.put("category", "olgas", {})
        for edit in (headapi.Edit(mode="user", key="eve", object={"type": "User", "values": {"role": "admin"}}),):
            with pytest.raises(Forbidden, match="user objects"):
                await olga.commit([edit])
        with pytest.raises(Forbidden):
            await olga.delete("user", "admin")
    assert (await admin.revisions(1))[0].author == "olga"


async def test_a_user_who_is_shut_out_is_out_at_once(site: heads.Served, admin: HeadClient) -> None:
    async with await as_user(site, admin, "uwe", "operator") as uwe:
        assert (await uwe.whoami()).user == "uwe"
        await admin.put("user", "uwe", {"role": "operator", "enabled": False}, replace=True)
        with pytest.raises(Unauthorized):
            await uwe.whoami()


async def test_a_node_sees_its_own_desired_state_and_nothing_else(site: heads.Served, admin: HeadClient) -> None:
    made = await admin.create_token("node001", "agent", kind="node")
    async with HeadClient(site.url, token=made.token, ca_file=str(site.data / "ca.crt")) as node:
        assert await node.desired("node001") is not None
        for refused in (node.desired("node002"), node.tree(), node.revisions(), node.tokens(), node.audit()):
            with pytest.raises(Forbidden):
                await refused


async def test_another_sites_page_cannot_write_with_a_browsers_certificate(site: heads.Served) -> None:
    certificate = site.data / "admin.crt"
    status, _, body = await ask(
        site, "/api/v1/commits", method="POST", certificate=certificate, headers={"Origin": "https://evil.example"}
    )
    assert status == 403 and "evil.example" in body["detail"]
    status, _, _ = await ask(
        site, "/api/v1/commits", method="POST", certificate=certificate, headers={"Origin": site.url}
    )
    assert status != 403


# The program beside the daemon


def test_status_says_where_and_how(site: heads.Served) -> None:
    found = json.loads(heads.bedplate("head", "status", "--data", site.data, "-o", "json").stdout)
    assert found["url"] == site.url and found["standing"] == "active" and found["revision"] >= 1
    assert found["daemon"] == f"process {site.process.pid}"


async def test_tokens_and_certificates_made_by_the_program_count_at_once(site: heads.Served, tmp_path: Path) -> None:
    token = heads.bedplate("head", "token", "create", "admin", "--data", site.data, "--days", "1").stdout.strip()
    async with HeadClient(site.url, token=token, ca_file=str(site.data / "ca.crt")) as client:
        assert (await client.whoami()).user == "admin"
        listed = json.loads(heads.bedplate("head", "token", "list", "--data", site.data, "-o", "json").stdout)
        (own,) = [one for one in listed if one["id"] == token.split("_")[1]]
        assert own["used"] and own["expires"] and token.split("_")[2] not in json.dumps(listed)
        heads.bedplate("head", "token", "revoke", own["id"], "--data", site.data)
        with pytest.raises(Unauthorized):
            await client.whoami()
    heads.bedplate("head", "certificate", "node002", "--node", "--data", site.data, "--out", tmp_path)
    status, _, body = await ask(site, "/api/v1/whoami", certificate=tmp_path / "node002.crt")
    assert status == 200 and body["node"] == "node002"
    assert (await ask(site, "/api/v1/tree", certificate=tmp_path / "node002.crt"))[0] == 403


def test_a_second_daemon_on_the_folder_is_refused_and_names_the_first(site: heads.Served) -> None:
    refused = heads.bedplate("head", "serve", "--data", site.data, "--port", "0", code=3)
    assert site.url in refused.stderr and str(site.process.pid) in refused.stderr


def test_a_taken_port_is_said_so(site: heads.Served, tmp_path: Path) -> None:
    data = heads.init(tmp_path / "other", "--nodes", "0")
    port = site.url.rsplit(":", 1)[1]
    refused = heads.bedplate("head", "serve", "--data", data, "--port", port, "--bind", "127.0.0.1", code=2)
    assert f"127.0.0.1:{port}" in refused.stderr and "--port" in refused.stderr


async def test_a_backup_of_a_served_head_is_whole(site: heads.Served, admin: HeadClient, tmp_path: Path) -> None:
    await admin.put("category", "kept", {"notes": "in the backup"})
    revision = (await admin.whoami()).revision
    said = heads.bedplate("head", "backup", tmp_path / "b.tar.gz", "--data", site.data, "--with-keys").stdout
    assert f"revisions 1 to {revision}" in said
    heads.bedplate("head", "restore", tmp_path / "b.tar.gz", "--data", tmp_path / "new")
    async with open_head(tmp_path / "new") as opened:
        assert opened.head.tree.get(("category", "kept")).values["notes"] == "in the backup"


# Ends and new beginnings


async def test_a_restart_keeps_everything_and_a_stop_waits_for_no_reader(tmp_path: Path) -> None:
    data = heads.init(tmp_path / "site", "--nodes", "1")
    with heads.served(data) as running:
        async with running.client() as client:
            made = await client.create_token("admin", "kept")
            await client.put("category", "kept", {"notes": "over the restart"})
            async with asyncio.TaskGroup() as tasks:
                heard: list[int] = []

                async def listen() -> None:
                    async for event in client.events(0, types=["revision"]):
                        assert event.revision is not None
                        heard.append(event.revision.number)

                listening = tasks.create_task(listen())
                await until(lambda: 2 in heard)
                assert await asyncio.to_thread(running.stop) == 0
                assert "head.stopped" in running.log()
                listening.cancel()
        url = running.url
    assert Folder.find(data).daemon_url() == "" and Folder.find(data).settings.url == url
    with heads.served(data) as again:
        async with HeadClient(again.url, token=made.token, ca_file=str(data / "ca.crt")) as client:
            assert (await client.get("category", "kept")).values["notes"] == "over the restart"
            assert [one.number for one in await client.revisions()] == [2, 1]


async def test_kill_9_loses_no_acknowledged_commit_and_repeats_none(tmp_path: Path) -> None:
    data = heads.init(tmp_path / "site", "--nodes", "1")
    acknowledged: dict[str, int] = {}
    killed = asyncio.Event()

    async def commit(client: HeadClient, name: str) -> None:
        edit = headapi.Edit(mode="category", key=name, object={"type": "Category"})
        try:
            made = await client.commit([edit], nonce=name)
        except errors.Retryable:
            return
        assert made is not None
        acknowledged[name] = made.number
        if len(acknowledged) >= COMMITS // 4:
            killed.set()

    names = [f"c{number}" for number in range(COMMITS)]
    with heads.served(data) as running:
        async with running.client(attempts=1) as client, asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(commit(client, name))
            await killed.wait()
            running.kill()
    before = dict(acknowledged)
    acknowledged.clear()
    assert before, "some were acknowledged before the end"
    kept = await backups.backup(Folder.find(data), tmp_path / "after-the-crash.tar.gz", with_keys=True)
    assert kept.revision >= max(before.values()), "also a backup of what a crash left holds them"
    with heads.served(data) as again:
        async with again.client() as client:
            held = {one.key: one.revision for one in await client.list("category")}
            assert all(held.get(name) == number for name, number in before.items())
            # Whoever had no answer asks again with the same nonce: done once, whatever had happened.
            for name in names:
                await commit(client, name)
            revisions = await client.revisions(2 * COMMITS)
    assert sorted(one.number for one in revisions) == list(range(1, COMMITS + 2)), "no hole, nothing twice"
    assert sorted(one.nonce for one in revisions if one.number > 1) == sorted(names)
    assert acknowledged.keys() == set(names), "who asks again gets the answer it lost"
    assert all(acknowledged[name] == number for name, number in before.items())


# A store that goes away


async def test_a_database_that_is_deleted_under_a_daemon_is_noticed(tmp_path: Path) -> None:
    data = heads.init(tmp_path / "site", "--nodes", "1")
    with heads.served(data) as running:
        async with running.client(attempts=1) as client:
            assert (await ask(running, "/readyz"))[0] == 200
            (data / "head.db").rename(data / "elsewhere.db")
            with pytest.raises(errors.Unavailable, match="deleted or moved while it was open"):
                await client.create("category", "lost", {})
            assert (await ask(running, "/readyz"))[0] == 500
            assert (await ask(running, "/livez"))[0] == 200


def test_a_head_takes_as_many_connections_as_the_system_allows(tmp_path: Path) -> None:
    """Not the 1,024 of a login: each agent has one."""
    data = heads.init(tmp_path / "site", "--nodes", "1")
    serve = ("head", "serve", "--data", str(data), "--bind", "127.0.0.1", "--port", "0")
    command = ["sh", "-c", 'ulimit -Sn 512; exec "$@"', "sh", str(servers.bedplate_program()), *serve]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert "serves at" in process.stdout.readline()
            soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        finally:
            process.terminate()
    assert soft == hard > 512
