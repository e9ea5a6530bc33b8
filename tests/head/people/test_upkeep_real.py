"""A user of the tree on a real API server with the permission manager beside it: the rights are real, and end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.head.people.conftest import site_of
from tests.setup.people.managed import Place, managed_cluster
from tests.setup.people.worlds import People as Accounts
from tests.setup.people.worlds import World
from tests.waiting import until

from bedplate.api import permissions
from bedplate.api.resources import NODES, PODS
from bedplate.core import errors
from bedplate.kube import Client, config
from bedplate.setup.people.request import Action

pytestmark = pytest.mark.real


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with managed_cluster("real", tmp_path) as running:
        yield running


async def test_a_user_of_the_tree_has_the_rights_of_one_that_the_tool_made_and_loses_them(
    place: Place, tmp_path: Path
) -> None:
    homes, folder = tmp_path / "homes", tmp_path / "head"
    homes.mkdir()
    folder.mkdir()
    async with Client(config.load(place.server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        world = World(place.server, client, Accounts(homes), place.ca)
        async with site_of(world, folder, folder / "no-authority") as site:
            await site.world.run(Action.ADD, "anna", name="default")
            await site.put("john")
            await site.tells("Issued the certificate of john")
            made = {name: [part["kind"] for part in await made_of(site.client, name)] for name in ("anna", "john")}
            assert made["anna"] == made["john"] != []
            async with Client(config.load(site.kubeconfig("john"), environ={})) as john:
                await john.list(PODS, "john-restricted")
                await john.list(NODES)
                with pytest.raises(errors.Denied):
                    await john.list(PODS, "anna-restricted")
                await site.remove("john")
                await site.tells("User john has no rights in namespace john-restricted any more")

                async def is_out() -> bool:
                    try:
                        await john.list(PODS, "john-restricted")
                    except errors.Denied:
                        return True
                    return False

                await until(is_out, "john has no rights any more")
            await until(lambda: not site.kubeconfig("john").exists(), "the kubeconfig is gone")
            await until(
                lambda: [row.user for row in site.people.state("default").people] == ["anna"],
                "john is not listed any more",
            )


async def made_of(client: Client, user: str) -> list[dict[str, str]]:
    """The kinds of all that the permission manager made for a user, by its status."""
    found = (await client.list(permissions.USERS, permissions.NAMESPACE)).items
    (one,) = [item for item in found if item.spec.username == user]
    return [{"kind": name.split("/")[0]} for name in one.status.objects]
