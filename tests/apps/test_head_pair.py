"""Two head daemons on a real etcd of three members: one is active, and nothing that was acknowledged goes with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from tests import programs
from tests.apps import headprograms as heads
from tests.head.committing import commit
from tests.store import etcd_cluster
from tests.ui.web.reading import Reader
from tests.waiting import until
from yarl import URL

from bedplate.api import headapi
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.folder import backups, creation
from bedplate.head.folder.datafolder import open_head
from bedplate.head.objects import Obj
from bedplate.head.session import Edit
from bedplate.lab import credentials

ATTEMPTS = 60
# A machine that has too much to do must not look like a dead head.
PATIENT = ("--takeover-after", "8")
SHARE, SOAK = 200, 2000


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[etcd_cluster.Cluster]:
    with programs.etcd(tmp_path / "etcd", members=3, arguments=("--unsafe-no-fsync",)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of two heads of one site, which nobody serves: to be copied."""
    made = tmp_path_factory.mktemp("pair")
    heads.init(made / "a", "--name", "basecm10", "--nodes", "2")
    heads.init(made / "b", "--join", str(made / "a"), "--name", "basecm11")
    return made


class Pair:
    """Two heads of a site; `one` began first."""

    def __init__(self, folders: Path, etcd: etcd_cluster.Cluster) -> None:
        self.words = ("--store", "etcd", "--etcd-endpoints", ",".join(etcd.endpoints), *PATIENT)
        self.a, self.b = folders / "a", folders / "b"
        self.one = heads.Served(self.a, *self.words)
        self.other: heads.Served | None = None

    def __enter__(self) -> Pair:
        try:
            assert self.one.url
            self.other = heads.Served(self.b, *self.words)
            assert self.other.url
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for daemon in (self.one, self.other):
            if daemon is not None and daemon.process.poll() is None:
                daemon.kill()

    @property
    def second(self) -> heads.Served:
        assert self.other is not None
        return self.other

    def client(self) -> HeadClient:
        """A client that knows both."""
        return self.one.client(self.second.url, attempts=ATTEMPTS)


@pytest.fixture
def pair(tmp_path: Path, etcd: etcd_cluster.Cluster, folders: Path) -> Iterator[Pair]:
    shutil.copytree(folders, tmp_path / "heads")
    with Pair(tmp_path / "heads", etcd) as running:
        yield running


async def is_active(daemon: heads.Served) -> bool:
    try:
        async with daemon.client() as client:
            return (await client.whoami()).is_active
    except errors.Retryable:
        return False


async def write_to(daemon: heads.Served, name: str) -> tuple[int, str]:
    """The status of a write to this very head, and where it says the active one is."""
    token = (daemon.data / "admin.token").read_text().strip()
    connector = aiohttp.TCPConnector(ssl=heads.trust(daemon.data))
    body = {"edits": [{"mode": "category", "key": name, "object": {"type": "Category"}}], "nonce": name}
    async with (
        aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {token}"}) as session,
        session.post(f"{daemon.url}/api/v1/commits", json=body, timeout=aiohttp.ClientTimeout(60)) as got,
    ):
        await got.read()
        return got.status, got.headers.get("Bedplate-Active", "")


async def every_revision(client: HeadClient) -> list[headapi.Revision]:
    """All of them, newest first, read in pages."""
    found = list(await client.revisions(500))
    while found[-1].number > 1:
        found += await client.revisions(500, before=found[-1].number)
    return found


def edit(name: str) -> headapi.Edit:
    return headapi.Edit(mode="category", key=name, object={"type": "Category"})


async def test_the_passive_head_follows_serves_reads_and_says_where_to_write(pair: Pair) -> None:
    assert await is_active(pair.one) and not await is_active(pair.second)
    async with pair.one.client() as active, pair.second.client() as passive:
        await active.put("category", "fresh", {"notes": "from the active one"})
        await until(lambda: _has(passive, "fresh"), "the passive head has it")
        assert await write_to(pair.second, "refused") == (503, pair.one.url)
        assert (await passive.revisions(1))[0].number == 2
        # A client that knows the passive one alone is led to the active one.
        await passive.put("category", "led", {})
        assert passive.url == pair.one.url
        made = await active.create_token("admin", "of both")
    async with HeadClient(pair.second.url, token=made.token, ca_file=str(pair.b / "ca.crt")) as passive:

        async def is_known() -> bool:
            try:
                return (await passive.whoami()).user == "admin"
            except errors.Denied:
                return False

        await until(is_known, "the passive head knows the token")
    found = json.loads(heads.bedplate("head", "status", "--data", pair.b, "-o", "json").stdout)
    assert found["standing"] == "passive" and found["active"] == pair.one.url


async def _has(client: HeadClient, name: str) -> bool:
    return any(one.key == name for one in await client.list("category"))


async def commit_through_a_kill(pair: Pair, names: list[str]) -> tuple[dict[str, int], heads.Served, heads.Served]:
    """Commit all of them, at most 200 at once, and kill the active head after a quarter: what was acknowledged as which
    revision, the dead head, and the other one."""
    acknowledged: dict[str, int] = {}
    enough = asyncio.Event()
    at_once = asyncio.Semaphore(SHARE)

    async def commit(client: HeadClient, name: str) -> None:
        async with at_once:
            made = await client.commit([edit(name)], f"commit {name}", nonce=name)
        assert made is not None
        acknowledged[name] = made.number
        if len(acknowledged) >= len(names) // 4:
            enough.set()

    async with pair.client() as client, asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(commit(client, name))
        await enough.wait()
        # Whichever it is by now: the one that has just answered.
        dead, survivor = (pair.one, pair.second) if client.url == pair.one.url else (pair.second, pair.one)
        dead.kill()
        assert len(acknowledged) < len(names), "it was killed in the midst of them"
    return acknowledged, dead, survivor


@pytest.mark.parametrize("count", [SHARE, pytest.param(SOAK, marks=pytest.mark.soak)])
async def test_kill_9_of_the_active_head_during_commits_loses_none_and_doubles_none(pair: Pair, count: int) -> None:
    names = [f"c{number}" for number in range(count)]
    acknowledged, dead, survivor = await commit_through_a_kill(pair, names)
    assert len(acknowledged) == count, "every client got its answer in the end, from the other head"
    await until(lambda: is_active(survivor), "the other one took over")

    async with survivor.client() as client:
        revisions = await every_revision(client)
        held = {one.key: one.revision for one in await client.list("category")}
    assert sorted(one.number for one in revisions) == list(range(1, count + 2)), "no hole, nothing twice"
    assert {one.nonce: one.number for one in revisions if one.number > 1} == acknowledged
    assert {name: held[name] for name in names} == acknowledged

    # The dead one comes back as the passive one, and has missed nothing.
    with heads.served(dead.data, *pair.words) as again:
        assert not await is_active(again)
        async with again.client() as client:
            assert (await client.whoami()).revision == count + 1


@pytest.mark.soak
async def test_one_takeover_after_the_other_loses_none_and_doubles_none(pair: Pair) -> None:
    """Kill, freeze and stop whoever is active, again and again, while twenty clients commit."""
    acknowledged: dict[str, int] = {}
    is_over = asyncio.Event()

    async def commit_on(client: HeadClient, writer: int) -> None:
        number = 0
        while not is_over.is_set():
            name = f"w{writer}-{number}"
            made = await client.commit([edit(name)], nonce=name)
            assert made is not None
            acknowledged[name] = made.number
            number += 1
            await asyncio.sleep(0.2)

    async with pair.client() as client, asyncio.TaskGroup() as tasks:
        for writer in range(20):
            tasks.create_task(commit_on(client, writer))
        for harm in ("kill", "freeze", "stop", "kill", "freeze", "stop"):
            await more_than(acknowledged, len(acknowledged) + 40)
            is_first = client.url == pair.one.url
            victim = pair.one if is_first else pair.second
            if harm == "freeze":
                # It answers nothing and closes nothing, as one without power: clients ask the other in the end.
                victim.process.send_signal(signal.SIGSTOP)
                await more_than(acknowledged, len(acknowledged) + 40)
                victim.process.send_signal(signal.SIGCONT)
                continue
            port = ("--port", victim.url.rsplit(":", 1)[1])
            await asyncio.to_thread(victim.kill if harm == "kill" else victim.stop)
            again = heads.Served(victim.data, *pair.words, *port)
            pair.one, pair.other = (again, pair.other) if is_first else (pair.one, again)
            assert await asyncio.to_thread(lambda daemon=again: daemon.url)  # type: ignore[misc]
        is_over.set()
    async with pair.client() as client:
        revisions = await every_revision(client)
    assert [one.number for one in revisions] == list(range(len(acknowledged) + 1, 0, -1)), "no hole, nothing twice"
    assert {one.nonce: one.number for one in revisions if one.number > 1} == acknowledged


async def more_than(held: dict[str, int], count: int) -> None:
    async def is_so() -> bool:
        return len(held) > count

    await until(is_so, f"more than {count} commits")


async def test_event_streams_and_clients_go_on_with_the_other_head(pair: Pair) -> None:
    heard: list[int] = []

    async def listen(client: HeadClient) -> None:
        async for event in client.events(1, types=["revision"]):
            assert event.revision is not None
            heard.append(event.revision.number)

    async def has_heard(number: int) -> bool:
        return number in heard

    async with pair.client() as client, pair.client() as listener, asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(listen(listener))
        await client.commit([edit("before")])
        await until(lambda: has_heard(2), "the first is heard")
        pair.one.kill()
        await client.commit([edit("after")])
        await until(lambda: has_heard(3), "the second is heard")
        listening.cancel()
    assert heard == [2, 3], "each once, in order, across both heads"


@contextlib.asynccontextmanager
async def browsing(daemon: heads.Served, login: str = "") -> AsyncIterator[Reader]:
    """A browser at a head, with the cookie of a login."""
    jar = aiohttp.CookieJar(unsafe=True)
    if login:
        jar.update_cookies({f"__Host-bedplate_login_{URL(daemon.url).port}": login}, URL(daemon.url))
    connector = aiohttp.TCPConnector(ssl=heads.trust(daemon.data))
    async with aiohttp.ClientSession(daemon.url, connector=connector, cookie_jar=jar) as session:
        yield Reader(session)  # type: ignore[arg-type]


async def test_a_login_of_the_page_and_what_it_staged_outlast_a_kill_of_the_active_head(pair: Pair) -> None:
    async with browsing(pair.one) as reader:
        await reader.sign_in((pair.a / "admin.token").read_text().strip())
        await reader.get("/edit/device/node001")
        page = await reader.submit("/edit/device/node001", f__notes="staged before the kill")
        assert page.status == 200, page.text
        (login,) = [cookie.value for cookie in reader.client.cookie_jar if "_login_" in cookie.key]  # type: ignore[attr-defined]
        pair.one.kill()
    await until(lambda: is_active(pair.second), "the other one took over")
    async with browsing(pair.second) as stranger:
        assert "Sign in" in (await stranger.get("/changes")).text
    async with browsing(pair.second, login) as reader, pair.second.client() as client:
        assert (await client.get("device", "node001")).values.get("notes", "") == ""
        page = await reader.get("/changes")
        assert page.status == 200 and "staged before the kill" in page.text
        page = await reader.submit("/changes/commit", message="after the takeover")
        assert page.status == 200, page.text
        assert (await client.get("device", "node001")).values["notes"] == "staged before the kill"
        (revision,) = await client.revisions(1)
        assert (revision.author, revision.message) == ("admin", "after the takeover")


async def test_a_frozen_head_wakes_up_passive_and_a_clean_stop_gives_it_the_place_back(pair: Pair) -> None:
    pair.one.process.send_signal(signal.SIGSTOP)
    await until(lambda: is_active(pair.second), "the other one took over")
    async with pair.second.client() as client:
        await client.commit([edit("meanwhile")])
    # What is asked of it while it sleeps is the first thing it reads.
    writing = asyncio.create_task(write_to(pair.one, "deposed"))
    await asyncio.sleep(0.5)
    pair.one.process.send_signal(signal.SIGCONT)
    status, active = await writing
    assert status == 503 and active in ("", pair.second.url)
    await until(lambda: _says(pair.one, pair.second.url), "it knows who is active")
    assert (await write_to(pair.one, "deposed"))[0] == 503
    async with pair.one.client() as client:
        await until(lambda: _has(client, "meanwhile"), "it has caught up")
    async with pair.second.client() as client:
        assert not await _has(client, "deposed")
    assert await asyncio.to_thread(pair.second.stop) == 0
    await until(lambda: is_active(pair.one), "the place is given back")
    assert (await write_to(pair.one, "handed-over"))[0] == 200


async def _says(daemon: heads.Served, url: str) -> bool:
    async with daemon.client() as client:
        return (await client.whoami()).active == url


async def test_etcd_members_may_go_one_at_a_time_and_without_a_majority_reads_go_on(
    pair: Pair, etcd: etcd_cluster.Cluster
) -> None:
    async with pair.client() as client:
        await asyncio.to_thread(etcd.kill, 0)
        made = await client.commit([edit("without-one")])
        assert made is not None and made.number == 2
        await asyncio.to_thread(etcd.kill, 1)
        async with pair.one.client() as reader:

            async def is_refused() -> bool:
                return (await write_to(pair.one, "without-a-majority"))[0] == 503

            await until(is_refused, "writes are refused")
            assert await _has(reader, "without-one")
            assert (await reader.whoami()).revision == 2
        await asyncio.to_thread(etcd.start, 0)
        await asyncio.to_thread(etcd.start, 1)
        # Nobody starts anything again: a head is active by itself, and the commit that was refused may still be made.
        await client.commit([edit("with-all")])
        made = await client.commit([edit("without-a-majority")], nonce="without-a-majority")
        assert made is not None
        numbers = [one.number for one in await every_revision(client)]
        assert numbers == list(range(4, 0, -1))


@pytest.fixture
def guarded_etcd(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The words that make a head use an etcd which lets in those alone who show a certificate."""
    folder = tmp_path / "certificates"
    authority = credentials.Authority.open(folder)
    server = authority.issue("server", "etcd", hosts=["127.0.0.1"])
    client = authority.issue("client", "head")
    tls = etcd_cluster.Tls(folder / "ca.crt", server.certificate, server.key, client.certificate, client.key)
    files = ("--etcd-cafile", tls.ca, "--etcd-certfile", tls.client_cert, "--etcd-keyfile", tls.client_key)
    with programs.etcd(tmp_path / "etcd", tls=tls, arguments=("--unsafe-no-fsync",)) as cluster:
        yield ("--store", "etcd", "--etcd-endpoints", cluster.endpoints[0], *map(str, files), "--etcd-prefix", "/a/b")


@pytest.mark.external
async def test_an_etcd_is_filled_with_the_folders_history_once_and_belongs_to_its_site(
    tmp_path: Path, guarded_etcd: tuple[str, ...]
) -> None:
    words = guarded_etcd
    folder = await creation.make(tmp_path / "site", name="basecm10", nodes=1)
    async with open_head(folder.path) as opened:
        await commit(opened.head, [Edit("category", "early", None, Obj("Category", "early"))], "admin", "before etcd")
    with heads.served(folder.path, *words) as running:
        async with running.client() as client:
            assert [one.message for one in await client.revisions(2)] == ["before etcd", "first tree of basecm10"]
            await client.commit([edit("late")], "on etcd")
        await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=True)

        stranger = await creation.make(tmp_path / "stranger", name="basecm10", nodes=0)
        refused = heads.bedplate("head", "serve", "--data", stranger.path, "--port", "0", *words, code=2)
        assert "another site" in refused.stderr and "--join" in refused.stderr
        async with open_head(stranger.path) as opened:
            assert opened.head.revision == 1, "its own tree is where it was"
    # The folder remembers where its tree is; what it held itself is old.
    refused = heads.bedplate("head", "serve", "--data", folder.path, "--port", "0", "--store", "sqlite", code=2)
    assert "kept in an etcd" in refused.stderr
    assert not folder.file("head.db").exists() and folder.file("before-etcd.db").exists()
    with heads.served(folder.path) as again:
        async with again.client() as client:
            assert (await client.revisions(1))[0].message == "on etcd"

    await backups.restore(tmp_path / "b.tar.gz", tmp_path / "new")
    async with open_head(tmp_path / "new") as opened:
        assert [one.message for one in await opened.head.log(2)] == ["on etcd", "before etcd"]
