"""Who is signed in to the page stays so, with what is staged, over a restart of the daemon and over a takeover."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.head import sites
from tests.head.committing import commit, commit_session
from tests.ui.web.conftest import KEY, Place
from tests.ui.web.reading import Reader

from bedplate.core.clock import ManualClock
from bedplate.head import renaming
from bedplate.head.access import Access
from bedplate.head.daemon import Service
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import transfer
from bedplate.head.objects import Secret
from bedplate.head.service import Head
from bedplate.head.session import Session
from bedplate.head.sittings import LOGINS, Sittings
from bedplate.head.vault import Vault
from bedplate.store.sqlite import SqliteStore
from bedplate.ui.web import mount
from bedplate.ui.web.logins import IDLE_S, Logins, Proof
from bedplate.ui.web.visit import person_of


@contextlib.asynccontextmanager
async def again(place: Place, reader: Reader) -> AsyncIterator[Reader]:
    """The same browser at a daemon that has just started on the same store, at the same address."""
    store = place.head._ledger._store
    async with Head(store, SCHEMA, Vault(KEY), clock=place.clock) as head:
        service = Service(
            head,
            Access(lambda: head.tree, place.tokens),
            place.service.notices,
            place.service.health,
            clock=place.clock,
            sittings=Sittings(store, Vault(KEY)),
        )
        app = web.Application()
        mount(app, service)
        async with TestServer(app) as server, TestClient(server) as client:
            for cookie in reader.client.session.cookie_jar:
                name = cookie.key.replace(str(reader.client.port), str(client.port))
                client.session.cookie_jar.update_cookies({name: cookie.value}, server.make_url("/"))
            yield Reader(client)


async def test_a_restart_keeps_logins_and_what_they_staged(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/edit/device/node001")
    await reader.submit("/edit/device/node001", f__notes="staged before")
    await reader.get("/edit/kubernetes/default")
    await reader.submit("/edit/kubernetes/default", f__kube_ca_key="hush-hush")
    async with again(place, reader) as later:
        page = await later.get("/changes")
        assert page.status == 200
        assert "Changes 2" in page.text and "staged before" in page.text
        page = await later.submit("/changes/commit", message="after the restart")
        assert page.status == 200, page.text
        held = place.head._ledger
        await place.head.catch_up()
        assert held.tree.get(("device", "node001")).values["notes"] == "staged before"
        secret = held.tree.get(("kubernetes", "default")).values["kube_ca_key"]
        assert isinstance(secret, Secret) and secret.reveal() == "hush-hush"
        assert "Changes 0" in (await reader.get("/")).text, "the other head sees that it is committed"


async def test_what_another_commits_in_between_is_a_clash_after_a_restart_too(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/edit/device/node001")
    await reader.submit("/edit/device/node001", f__notes="mine")
    session = place.head.session()
    session.set(("device", "node001"), "notes", "theirs")
    await commit_session(place.head, session, "bob")
    async with again(place, reader) as later:
        await later.get("/changes")
        page = await later.submit("/changes/commit", message="")
        assert "bob" in page.text
        assert place.head.tree.get(("device", "node001")).values["notes"] == "theirs"


async def test_a_restart_lets_nobody_in_who_was_shut_out(place: Place) -> None:
    reader, other = await place.reader("admin"), await place.reader("operator")
    await reader.submit("/logout")
    async with again(place, reader) as later:
        assert "Sign in" in (await later.get("/")).text
    token = next(token for token in place.tokens.list() if token.subject == "operator")
    await place.tokens.revoke(token.id)
    async with again(place, other) as later:
        assert "Sign in" in (await later.get("/")).text


async def test_an_idle_login_ends_whoever_kept_it(place: Place) -> None:
    reader = await place.reader()
    await place.clock.advance(IDLE_S + 1)
    async with again(place, reader) as later:
        assert "Sign in" in (await later.get("/")).text
    await place.reader("auditor")
    store = place.head._ledger._store
    assert len((await store.list(LOGINS)).entries) == 1, "the old one is swept when somebody signs in"


async def test_nothing_of_a_login_can_be_read_in_the_store_or_is_in_a_backup(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/edit/kubernetes/default")
    await reader.submit("/edit/kubernetes/default", f__kube_ca_key="hush-hush")
    store = place.head._ledger._store
    entries = (await store.list(LOGINS)).entries
    cookies = [cookie.value for cookie in reader.client.session.cookie_jar]
    for entry in entries:
        for text in ("hush-hush", place.signed["admin"], "admin", *cookies):
            assert text not in entry.key and text.encode() not in entry.value
    assert not [entry.key async for entry in transfer.entries(store) if entry.key.startswith(LOGINS)]


async def test_a_session_is_the_same_again(tmp_path: pathlib.Path) -> None:
    async with (
        SqliteStore(tmp_path / "x.db") as store,
        Head(store, SCHEMA, Vault(KEY), clock=ManualClock()) as head,
    ):
        first = head.session()
        for mode, obj in sites.manual().objects():
            first.put((mode, obj.key), obj)
        await commit(head, first.edits(), "setup")
        session = head.session()
        session.set(("device", "node001"), "notes", "x")
        session.set(("kubernetes", "default"), "kubecakey", "hush")
        session.add(("category",), "fresh")
        session.remove(("device", "node007"))
        renaming.rename(session, ("category", "gpu-nodes"), "gpus")
        copy = Session.restored(head.tree, session.dump())
        assert copy.edits() == session.edits()
        assert copy.staged() == session.staged()
        assert copy.edits(("category", "gpus")) == session.edits(("category", "gpus"))


async def test_while_the_store_is_away_a_login_goes_on(place: Place) -> None:
    class Away(Sittings):
        async def read(self, cookie: str) -> None:
            from bedplate.core import errors

            raise errors.Unavailable("no quorum")

    logins = Logins(place.clock, Away(place.head._ledger._store, Vault(KEY)))
    login = await logins.begin("admin", Proof(Secret(place.signed["admin"])), place.head.tree)
    assert await logins.find(login.number, place.head.tree) is login
    assert person_of(place.service, login) is not None
