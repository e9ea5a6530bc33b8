"""One pass over one pool, without a server: what is written, in which order, and what concerns whom."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from tests.ipam.controller.test_statuses import Writes
from tests.ipam.controller.test_telling import Heard

from bedplate.api import meta
from bedplate.core.clock import ManualClock
from bedplate.ipam.controller import kinds
from bedplate.ipam.controller.holding import Holding
from bedplate.ipam.controller.pools import PoolController
from bedplate.ipam.controller.statuses import Statuses
from bedplate.ipam.controller.telling import Teller
from bedplate.ipam.pools import IPPOOLS, IPPool
from bedplate.ipam.quarantine import ANNOTATION, Policy
from bedplate.kube import errors as kube_errors
from bedplate.runtime.cache import Cache, Change

KEY = "ns/p"
SPEC = {"subnet": "10.0.0.0/24", "perNodeBlockSize": 16}
A = {"nodeName": "a", "startIP": "10.0.0.1", "endIP": "10.0.0.16"}
B = {"nodeName": "b", "startIP": "10.0.0.17", "endIP": "10.0.0.32"}


def node(name: str, version: str = "1", **labels: str) -> meta.PartialObject:
    return meta.PartialObject(metadata=meta.ObjectMeta(name=name, labels=labels, resource_version=version))


def pool(*allocations: dict[str, str], version: str = "1", spec: Any = SPEC, uid: str = "u") -> IPPool:
    metadata = {"name": "p", "namespace": "ns", "uid": uid, "resourceVersion": version}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"allocations": allocations}}, IPPool)


class Pods:
    """Pods of nodes, as the controller asks for them."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes

    async def of(self, nodes: Any) -> dict[str, list[Any]]:
        return {name: ["pod"] if name in self.nodes else [] for name in nodes}


class Bench:
    """A controller of IPPools with caches that the test fills."""

    def __init__(self, *with_pods: str, policy: Policy = Policy.PODS) -> None:
        self.nodes: Cache[meta.PartialObject] = Cache()
        self.pools: Cache[IPPool] = Cache()
        self.client: Any = Writes()
        self.heard = Heard()
        self.clock = ManualClock()
        registry = CollectorRegistry()
        pods: Any = Pods(*with_pods)
        self.controller: PoolController[IPPool] = PoolController(
            kinds.IPPOOL,
            self.pools,
            self.nodes,
            Statuses(self.client, IPPOOLS, self.pools, registry, "ippool"),
            Holding(policy, 600.0, pods, self.clock),
            Teller(self.heard),
            lambda _kind, _pool: (),
            time=self.clock,
            registry=registry,
        )

    async def given(self, one: IPPool, *names: str) -> None:
        for name in names:
            self.nodes.put(node(name), "1")
        self.pools.put(one, "1")
        await self.controller.reconcile(KEY)


def written(body: Any) -> list[str]:
    return [one.node_name for one in body["status"]["allocations"]]


async def test_what_is_held_back_is_written_before_the_status_that_gives_it_up() -> None:
    bench = Bench("a")
    await bench.given(pool(A, B), "b")
    first, second = bench.client.bodies
    assert list(json.loads(first["metadata"]["annotations"][ANNOTATION])) == ["10.0.0.1-10.0.0.16"]
    assert written(second) == ["b"] and second["metadata"]["resourceVersion"] == "2"


async def test_a_status_is_kept_when_what_is_held_back_could_not_be_written() -> None:
    bench = Bench("a")
    target: Any = kube_errors.Target("PATCH", "/x")

    async def refuse(*_: Any, **__: Any) -> Any:
        raise kube_errors.InternalError(target, meta.Status(code=500, message="trouble"))

    bench.client.patch = refuse
    try:
        await bench.given(pool(A, B), "b")
    except kube_errors.InternalError:
        pass
    assert bench.client.bodies == [], "the block must not be given up before it is held back"


async def test_equal_is_not_written_and_own_writes_concern_nobody() -> None:
    bench = Bench()
    await bench.given(pool(A, B), "a", "b")
    assert bench.client.bodies == []
    concerns = bench.controller._pool_changed
    same = pool(A, B, version="2")
    assert not list(concerns(Change(KEY, pool(A, B), same)))
    assert list(concerns(Change(KEY, same, pool(B, A, version="3")))) == [KEY]
    assert list(concerns(Change(KEY, same, pool(A, B, version="3", spec={**SPEC, "gateway": "10.0.0.1"})))) == [KEY]
    assert list(concerns(Change(KEY, same, None))) == [KEY]


async def test_heartbeats_touch_nothing_and_labels_only_pools_that_ask_for_them() -> None:
    bench = Bench()
    await bench.given(pool(A), "a")
    touched: list[str] = []
    bench.controller._pacer.touch = touched.append  # type: ignore[method-assign]
    changed = bench.controller._node_changed
    changed(Change("a", node("a"), node("a", "2")))
    changed(Change("a", node("a"), node("a", "3", rack="7")))
    assert touched == []
    changed(Change("b", None, node("b")))
    changed(Change("a", node("a"), None))
    assert touched == [KEY, KEY]


async def test_a_deleted_pool_is_forgotten() -> None:
    bench = Bench()
    await bench.given(pool(A), "a")
    gone = bench.pools.get(KEY)
    assert gone is not None
    bench.pools.remove(gone, "9")
    await bench.controller.reconcile(KEY)
    registry = bench.controller.registry
    labels = {"kind": "ippool", "pool": "p"}
    assert registry.get_sample_value("bedplate_ipam_pool_blocks_used", labels) is None
    touched: list[str] = []
    bench.controller._pacer.touch = touched.append  # type: ignore[method-assign]
    bench.controller._node_changed(Change("b", None, node("b")))
    assert touched == []


async def test_a_pool_made_anew_is_told_about_anew() -> None:
    bench = Bench()
    bad = {**SPEC, "perNodeBlockSize": 0}
    await bench.given(pool(spec=bad))
    await bench.given(pool(spec=bad, version="2"))
    assert [reason for reason, _ in bench.heard.texts] == ["InvalidSpec"]
    await bench.given(pool(spec=bad, version="3", uid="another"))
    assert [reason for reason, _ in bench.heard.texts] == ["InvalidSpec", "InvalidSpec"]


def refusing(code: int, message: str) -> Any:
    target = kube_errors.Target("PUT", "/x", IPPOOLS, "ns", "p")

    async def update(*_args: Any, **_named: Any) -> meta.PartialObject:
        raise kube_errors.InternalError(target, meta.Status(code=code, message=message))

    return update


async def test_a_status_that_the_server_refuses_is_told_about_once_and_again_when_it_comes_back() -> None:
    bench = Bench()
    answering = bench.client.update
    bench.client.update = refusing(500, "etcdserver: request is too large")
    for _ in range(2):
        with pytest.raises(kube_errors.InternalError):
            await bench.given(pool(), "a")
    told = [text for reason, text in bench.heard.texts if reason == "StatusNotWritten"]
    assert len(told) == 1
    assert "1 blocks" in told[0] and "too large" in told[0] and "several pools" in told[0]
    bench.client.update = answering
    await bench.given(pool(), "a")
    bench.client.update = refusing(500, "etcdserver: request is too large")
    with pytest.raises(kube_errors.InternalError):
        await bench.given(pool(version="9"), "a", "b")
    assert [reason for reason, _ in bench.heard.texts] == ["StatusNotWritten", "StatusNotWritten"]


async def test_the_usable_addresses_are_counted_when_somebody_looks() -> None:
    bench = Bench()
    await bench.given(pool(spec={**SPEC, "gateway": "10.0.0.1"}), "a", "b")
    labels = {"kind": "ippool", "pool": "p"}
    samples = {
        name: bench.controller.registry.get_sample_value(f"bedplate_ipam_pool_{name}", labels)
        for name in ("addresses_usable", "block_addresses_usable_min")
    }
    assert samples == {"addresses_usable": 31.0, "block_addresses_usable_min": 15.0}


async def test_a_pool_whose_exclusions_cover_it_is_not_called_exhausted() -> None:
    bench = Bench()
    await bench.given(pool(spec={**SPEC, "exclusions": [{"startIP": "10.0.0.0", "endIP": "10.0.0.255"}]}), "a")
    ((_, text),) = bench.heard.texts
    assert text == "no block for node a: spec.exclusions and what is reserved leave none of the pool"
    bench = Bench()
    await bench.given(pool(spec={"subnet": "10.0.0.0/28", "perNodeBlockSize": 14}), "a", "b")
    ((_, text),) = bench.heard.texts
    assert text == "no free block for node b: the pool is exhausted"
