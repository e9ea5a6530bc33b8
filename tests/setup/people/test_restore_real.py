"""Two hundred users on a real cluster: saved, wiped and restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.setup.people.managed import Place, managed_cluster
from tests.setup.people.worlds import People, World

from bedplate.api import permissions
from bedplate.core import clock
from bedplate.kube import Client, config
from bedplate.people import grants
from bedplate.people.cluster import Cluster
from bedplate.people.grants import Grant
from bedplate.people.plan import Change
from bedplate.setup.people.request import Action

pytestmark = pytest.mark.real

COUNT = 200
PATIENCE_S = 600.0


def changes() -> list[Change]:
    """What leads to the users: every tenth may use an operator, some have other roles."""
    result = []
    for number in range(COUNT):
        user, operators = f"user{number:03}", ("spark-operator",) if number % 10 == 0 else ()
        grant = Grant(
            user=user,
            namespace=grants.default_namespace(user),
            role=("edit", "view", "admin")[number % 3],
            uid=10000 + number,
            gids=(10000 + number, 100),
            paths=(f"/home/{user}",),
            operators=operators,
        )
        result += [Change(ref, obj["metadata"]["name"], None, obj) for ref, obj in grants.objects_of(grant)]
    return result


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with managed_cluster("real", tmp_path) as running:
        yield running


async def test_a_backup_of_many_users_restores_identical_objects(place: Place, tmp_path: Path) -> None:
    async with Client(config.load(place.server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        world = World(place.server, client, People(tmp_path), place.ca)
        cluster = Cluster(client, clock.SystemClock(), PATIENCE_S)
        users = changes()
        await cluster.restore(users)
        await cluster.wait(users)
        first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
        await world.run(Action.BACKUP, file=first)
        for ref in grants.KINDS:
            await client.delete_collection(ref, permissions.NAMESPACE)
        await cluster._wait_gone(users)
        assert await world.run(Action.LIST, as_json=True) == "[]\n"
        await cluster.ending(change.after["spec"]["namespace"] for change in users if change.after)
        printed = await world.run(Action.RESTORE, file=first, timeout_s=PATIENCE_S)
        assert f"Restored {len(users)} permission objects" in printed
        await world.run(Action.BACKUP, file=second)
        assert second.read_text() == first.read_text()
