"""Users of a cluster over REST, in the shell and on the page."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
from collections.abc import AsyncIterator

import pytest
from tests import programs
from tests.setup.people.worlds import People as Accounts
from tests.setup.people.worlds import World, install, stand_in
from tests.ui.rest.serving import Served, served, serving
from tests.ui.transcripts.driving import Desk
from tests.waiting import until

from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.clusters.service import Clusters
from bedplate.head.entities import SCHEMA
from bedplate.head.kubeclusters import file_of
from bedplate.head.people.service import People
from bedplate.kube import Client, config
from bedplate.setup.people.request import Action
from bedplate.ui.remote import RemoteBackend


@dataclasses.dataclass
class Site:
    served: Served
    world: World


@pytest.fixture
async def site(tmp_path: pathlib.Path) -> AsyncIterator[Site]:
    """A served head that keeps the users of a cluster, with the tool beside it."""
    homes = tmp_path / "homes"
    homes.mkdir()
    with programs.own_server("embedded") as server:
        pki = server.kubeconfig.parent / "data" / "pki"
        file = file_of(tmp_path, "default")
        file.parent.mkdir()
        file.write_bytes(server.kubeconfig.read_bytes())
        async with (
            Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as client,
            served(tmp_path) as made,
        ):
            await install(client)
            world = World(server, client, Accounts(homes), (pki / "ca.crt", pki / "ca.key"))
            clusters = Clusters(made.store, made.head, made.notices, made.health)
            clusters.people = People(made.store, made.head, made.notices, tmp_path, accounts=world.people, pki=pki)
            service = dataclasses.replace(made.service, clusters=await clusters.open())
            running = asyncio.create_task(clusters.run())
            try:
                async with stand_in(client), serving(service) as url:
                    yield Site(dataclasses.replace(made, url=url, service=service), world)
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running


async def settled(head: HeadClient, *expected: str) -> None:
    """Wait until these users, and no others, are ready with a certificate."""

    async def is_settled() -> bool:
        state = await head.people("default")
        ready = [row.user for row in state.people if row.state == "ready" and row.expires]
        return state.reached and ready == [row.user for row in state.people] == list(expected)

    await until(is_settled, f"{expected} are ready", describe=lambda: head.people("default"))


async def test_a_user_is_added_changed_and_removed_in_the_shell(site: Site) -> None:
    async with site.served.client() as head, RemoteBackend(head, SCHEMA) as backend:
        desk = Desk(site.served.head, backend=backend)
        await desk.do("kubernetes; use default; kubernetesusers; add john; set role view; commit")
        await settled(head, "john")
        listed = await desk.do("list -d ,")
        headers, row = (line.split(",") for line in listed.splitlines())
        assert headers == ["Name (key)", "Role", "Namespace", "Certificate", "State", "Reason"]
        assert (row[:3], row[4]) == (["john", "view", "john-restricted"], "ready")
        assert row[3].startswith("20")
        status = await desk.do("kubernetes; userstatus -d ,")
        assert status.splitlines()[1].split(",")[:5] == ["default", "john", "john-restricted", "view", "ready"]
        await desk.do("kubernetes; use default; kubernetesusers; use john; set operators spark-operator; commit")

        async def has_operator() -> bool:
            return [row.operators for row in (await head.people("default")).people] == [["spark-operator"]]

        await until(has_operator, "john may use the operator")
        await desk.do("kubernetes; use default; kubernetesusers; remove john; commit")
        await settled(head)
        assert "there is no state" in (await desk.fails("kubernetes; userstatus -s great")).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("add 'a b'", "user name"),
        ("add ..", "user name"),
        ("add john; set role root", "'root' is not one of edit, admin, view, cluster-admin"),
        ("add john; set namespace Dev_1", "a namespace (lower-case letters"),
        ("add john; set uid -1", "uid"),
        ("add john; set gids 7,x", "the number of a group"),
        ("add john; set paths home", "an absolute path"),
        ("add john; set operators mpi", "'mpi' is not one of"),
        ("add john; set paths /a/../etc; commit", "must be an absolute path without '..'"),
        ("add john; set paths /; commit", "would open every file of every node"),
        ("add john; set paths none,/scratch; commit", "none cannot be together with a path"),
        ("add john; set namespace kube-system; commit", "belongs to the cluster itself"),
        ("add john; set gids 4294967296; commit", "is larger than 2147483647"),
        ("add anna; add john; set namespace anna-restricted; commit", "is that of anna"),
    ],
)
async def test_what_cannot_be_is_refused_in_words(tmp_path: pathlib.Path, words: str, said: str) -> None:
    async with served(tmp_path) as made:
        desk = Desk(made.head)
        *first, last = words.split("; ")
        for word in ["kubernetes", "use default", "kubernetesusers", *first]:
            await desk.do(word)
        assert said in (await desk.fails(last)).err


async def test_what_the_tool_made_is_seen_and_can_be_taken_over(site: Site) -> None:
    await site.world.run(Action.ADD, "anna", role="admin", operators="postgresql-operator", name="default")
    async with site.served.client() as head, RemoteBackend(head, SCHEMA) as backend:
        desk = Desk(site.served.head, backend=backend)
        await desk.do("kubernetes; use default; set notes look; commit")

        async def is_seen() -> bool:
            return [row.owner for row in (await head.people("default")).people] == ["cluster"]

        await until(is_seen, "anna is seen")
        assert "has no user 'nobody'" in (await desk.fails("adoptuser nobody")).err
        await desk.do("kubernetes; use default; adoptuser anna; commit")

        async def is_ours() -> bool:
            state = await head.people("default")
            return [(row.owner, row.state) for row in state.people] == [("tree", "ready")]

        await until(is_ours, "anna is kept by the tree", describe=lambda: head.people("default"))
        with pytest.raises(errors.Invalid, match="is kept by a head"):
            await site.world.run(Action.MODIFY, "anna", role="view", name="default")


async def test_without_a_kubeconfig_the_state_says_what_is_missing(tmp_path: pathlib.Path) -> None:
    async with served(tmp_path) as made:
        clusters = Clusters(made.store, made.head, made.notices, made.health, tmp_path)
        service = dataclasses.replace(made.service, clusters=await clusters.open())
        async with serving(service) as url, HeadClient(url, token=made.tokens["arno"]) as head:
            state = await head.people("default")
            assert not state.reached and "kubernetes/default.kubeconfig" in state.trouble
            with pytest.raises(errors.NotFound):
                await head.people("nowhere")
