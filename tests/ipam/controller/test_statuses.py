"""Knowing one's own writes again, without a server."""

from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from bedplate.api import meta
from bedplate.ipam.controller.statuses import Statuses
from bedplate.ipam.pools import IPPOOLS, IPAllocation, IPPool
from bedplate.runtime.cache import Cache

KEY = "ns/p"
GIVEN = (IPAllocation(node_name="a", start_ip="10.0.0.1", end_ip="10.0.0.4"),)


def pool(version: str, *, uid: str = "u", allocations: tuple[IPAllocation, ...] = ()) -> IPPool:
    document: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "ns", "uid": uid, "resourceVersion": version},
        "spec": {"subnet": "10.0.0.0/24", "perNodeBlockSize": 4},
        "status": {"allocations": msgspec.to_builtins(allocations)},
    }
    return msgspec.convert(document, IPPool)


class Writes:
    """A client that answers each write with the next version."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def update(self, ref: Any, body: Any, namespace: str, *, subresource: str) -> meta.PartialObject:
        assert subresource == "status"
        return self._answer(body)

    async def patch(self, ref: Any, name: str, body: Any, namespace: str) -> meta.PartialObject:
        return self._answer(body)

    def _answer(self, body: Any) -> meta.PartialObject:
        self.bodies.append(body)
        version = str(int(body["metadata"]["resourceVersion"]) + 1)
        return meta.PartialObject(metadata=meta.ObjectMeta(name="p", namespace="ns", uid="u", resource_version=version))


def made() -> tuple[Statuses[IPPool], Cache[IPPool], Writes]:
    cache: Cache[IPPool] = Cache()
    client: Any = Writes()
    return Statuses(client, IPPOOLS, cache, CollectorRegistry(), "ippool"), cache, client


async def test_a_write_is_known_before_the_watch_brings_it() -> None:
    statuses, cache, client = made()
    cache.put(pool("1"), "1")
    found = statuses.present(KEY)
    assert found is not None
    await statuses.write(KEY, found, GIVEN)
    again = statuses.present(KEY)
    assert again is not None and again.status.allocations == GIVEN and again.metadata.resource_version == "2"
    assert "spec" not in client.bodies[0] and client.bodies[0]["metadata"]["uid"] == "u"


async def test_what_the_watch_brings_later_wins() -> None:
    statuses, cache, _ = made()
    cache.put(pool("1"), "1")
    await statuses.write(KEY, pool("1"), GIVEN)
    cache.put(pool("3"), "3")
    found = statuses.present(KEY)
    assert found is not None and found.status.allocations == () and found.metadata.resource_version == "3"


async def test_two_writes_in_a_row_stand_on_each_other() -> None:
    statuses, cache, client = made()
    cache.put(pool("1"), "1")
    annotated = await statuses.annotate(KEY, pool("1"), "a", "b")
    await statuses.write(KEY, annotated, GIVEN)
    assert [one["metadata"]["resourceVersion"] for one in client.bodies] == ["1", "2"]
    found = statuses.present(KEY)
    assert found is not None and found.metadata.resource_version == "3"
    # The watch brings the first of the two: what we know is newer.
    cache.put(pool("2"), "2")
    found = statuses.present(KEY)
    assert found is not None and found.metadata.resource_version == "3" and found.status.allocations == GIVEN


async def test_a_pool_that_was_made_anew_is_not_taken_for_the_old_one() -> None:
    statuses, cache, _ = made()
    cache.put(pool("1"), "1")
    await statuses.write(KEY, pool("1"), GIVEN)
    cache.put(pool("1", uid="other"), "9")
    found = statuses.present(KEY)
    assert found is not None and found.metadata.uid == "other" and found.status.allocations == ()
    cache.remove(found, "10")
    assert statuses.present(KEY) is None
