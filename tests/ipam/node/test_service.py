"""The calls of plugins: checks in their order, codes, pairs, routes; and any message ends with a status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ipam.node.daemons import parameters

from bedplate.core.clock import SystemClock
from bedplate.ipam.node import poolconfig
from bedplate.ipam.node.grpcconnection import Call
from bedplate.ipam.node.http2 import Code, Failed
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.pb import bedplate_ipam_pb2 as own_pb
from bedplate.ipam.node.pb import nvidia_ipam_pb2 as pb
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.poolview import PoolView
from bedplate.ipam.node.readiness import Readiness
from bedplate.ipam.node.reservations import Reservation, StoreFailed
from bedplate.ipam.node.service import NodeService, routes_of
from bedplate.runtime.cache import Cache

SERVICE = b"/nvidia.ipam.node.v1.IPAMService/"
OWN = b"/bedplate.ipam.node.v1.NodeService/"


def ippool(key: str = "p", **more: Any) -> PoolConfig:
    made: dict[str, Any] = {
        "subnet": "192.168.0.0/16",
        "start": "192.168.0.1",
        "end": "192.168.0.8",
        "gateway": "192.168.0.1",
    }
    return poolconfig.make(key, **{**made, **more})


class Collector:
    """Frees whatever it is given."""

    def __init__(self) -> None:
        self.seen: list[Reservation] = []

    async def collect(self, candidates: Any) -> int:
        self.seen += candidates
        return len(self.seen) - 1


class Node:
    """A service with a store of its own."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.view = PoolView("n1")
        self.readiness = Readiness()
        self.pools: Cache[Any] = Cache()
        self.readiness.pool_caches = (self.pools,)
        self.readiness.pod_caches = (self.pools,)
        self.collector = Collector()
        self.service = NodeService(ledger, self.view, self.readiness, self.collector)
        self.handlers = self.service.handlers()
        for config in (
            ippool(),
            ippool("q", subnet="fd00::/64", start="fd00::1", end="fd00::4", gateway=""),
            ippool("cidrpool/p", subnet="10.1.0.0/30", start="10.1.0.1", end="10.1.0.2", gateway="10.1.0.1"),
        ):
            self.view.configs[config.key] = config
        self.pools.synced.set()

    async def allocate(self, *pools: str, call: Call | None = None, **more: Any) -> list[pb.AllocationInfo]:
        request = pb.AllocateRequest(parameters=parameters(*pools, **more))
        answer = await self.handlers[SERVICE + b"Allocate"](request.SerializeToString(), call or Call())
        return list(pb.AllocateResponse.FromString(answer).allocations)

    async def check(self, *pools: str, **more: Any) -> None:
        request = pb.IsAllocatedRequest(parameters=parameters(*pools, **more))
        assert await self.handlers[SERVICE + b"IsAllocated"](request.SerializeToString(), Call()) == b""

    async def release(self, request: pb.DeallocateRequest) -> None:
        assert await self.handlers[SERVICE + b"Deallocate"](request.SerializeToString(), Call()) == b""

    def held(self) -> set[str]:
        return {one.address for one in self.ledger.reservations()}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    ledger = await Ledger.open(tmp_path / "store", clock=SystemClock(), options=LedgerOptions())
    yield Node(ledger)
    await ledger.close()


async def code_of(call: Any) -> Code:
    try:
        await call
    except Failed as err:
        assert err.message
        return err.code
    return Code.OK


def _without(field: str) -> pb.IPAMParameters:
    made = parameters("p")
    made.ClearField(field)  # type: ignore[arg-type]
    return made


def _with(change: Callable[[pb.IPAMParameters], object]) -> pb.IPAMParameters:
    made = parameters("p")
    change(made)
    return made


WRONG = {
    "parameters": None,
    "pools": _without("pools"),
    "three pools": parameters("p", "q", "r"),
    "an empty pool": parameters("p", ""),
    "container": _without("cni_containerid"),
    "interface": _without("cni_ifname"),
    "metadata": _without("metadata"),
    "pod": _with(lambda one: one.metadata.ClearField("k8s_pod_name")),
    "namespace": _with(lambda one: one.metadata.ClearField("k8s_pod_namespace")),
    "a requested address with a length": parameters("p", requested=("192.168.0.2/16",)),
    "a requested address that is none": parameters("p", requested=("192.168.0.2", "300.1.1.1")),
    "gateway and address": parameters("p", requested=("192.168.0.2",), gateway=True),
}


async def test_the_first_pools_refusal_is_what_is_heard(node: Node) -> None:
    await node.allocate("p")
    assert await code_of(node.allocate("p", "missing")) is Code.ALREADY_EXISTS
    assert await code_of(node.allocate("missing", "p")) is Code.NOT_FOUND


@pytest.mark.parametrize("method", ["Allocate", "IsAllocated"])
@pytest.mark.parametrize("what", WRONG)
async def test_a_request_that_lacks_something_is_invalid(node: Node, method: str, what: str) -> None:
    request = getattr(pb, f"{method}Request")(parameters=WRONG[what])
    sent = node.handlers[SERVICE + method.encode()](request.SerializeToString(), Call())
    assert await code_of(sent) is Code.INVALID_ARGUMENT
    assert not node.held()


async def test_checks_come_in_the_originals_order(node: Node) -> None:
    # Everything is wrong; what is fixed is no longer reported.
    request = pb.AllocateRequest()
    steps: list[tuple[str, Callable[[], object]]] = [
        ("parameters", lambda: request.parameters.SetInParent()),
        ("pools", lambda: request.parameters.pools.append("")),
        ("pools[0]", lambda: request.parameters.pools.__setitem__(0, "p")),
        ("cni_containerid", lambda: setattr(request.parameters, "cni_containerid", "c")),
        ("cni_ifname", lambda: setattr(request.parameters, "cni_ifname", "i")),
        ("metadata", lambda: request.parameters.metadata.SetInParent()),
        ("k8s_pod_name", lambda: setattr(request.parameters.metadata, "k8s_pod_name", "n")),
        ("k8s_pod_namespace", lambda: setattr(request.parameters.metadata, "k8s_pod_namespace", "n")),
    ]
    for name, fix in steps:
        with pytest.raises(Failed) as caught:
            await node.handlers[SERVICE + b"Allocate"](request.SerializeToString(), Call())
        assert name in caught.value.message
        fix()
    await node.handlers[SERVICE + b"Allocate"](request.SerializeToString(), Call())


async def test_pools_of_both_kinds_are_told_apart(node: Node) -> None:
    plain, cidr = await node.allocate("p"), await node.allocate("p", kind=2)
    assert [(one.ip, one.pool_type) for one in plain + cidr] == [("192.168.0.2/16", 1), ("10.1.0.2/30", 2)]


@pytest.mark.parametrize(("asked", "answered"), [(0, 1), (1, 1), (7, 7)])
async def test_an_unknown_kind_is_an_ippool(node: Node, asked: int, answered: int) -> None:
    found = await node.allocate("p", kind=asked)
    assert (found[0].ip, found[0].pool_type) == ("192.168.0.2/16", answered)


async def test_two_pools_are_given_together(node: Node) -> None:
    found = await node.allocate("p", "q")
    assert [(one.pool, one.ip, one.gateway) for one in found] == [
        ("p", "192.168.0.2/16", "192.168.0.1"),
        ("q", "fd00::1/64", ""),
    ]


@pytest.mark.parametrize(
    ("pools", "more", "code"),
    [
        (("p", "missing"), {}, Code.NOT_FOUND),
        (("p", "q"), {"requested": ("10.9.9.9",)}, Code.INVALID_ARGUMENT),
        (("p", "q"), {"requested": ("192.168.0.3", "192.168.0.4")}, Code.INVALID_ARGUMENT),
        (("p", "q"), {"gateway": True}, Code.INVALID_ARGUMENT),
        (("p", "q"), {"index": 6}, Code.INVALID_ARGUMENT),
        (("p",), {"index": 0}, Code.INVALID_ARGUMENT),
        (("p",), {"index": 8}, Code.INVALID_ARGUMENT),
        (("p",), {"index": -1}, Code.INVALID_ARGUMENT),
        (("p",), {"requested": ("192.168.0.0",)}, Code.INVALID_ARGUMENT),
        (("p",), {"requested": ("192.168.255.255",)}, Code.INVALID_ARGUMENT),
    ],
)
async def test_a_pair_that_cannot_be_given_leaves_no_trace(
    node: Node, pools: tuple[str, ...], more: dict[str, Any], code: Code
) -> None:
    assert await code_of(node.allocate(*pools, **more)) is code
    assert not node.held()


async def test_the_second_pool_being_full_leaves_the_first_untouched(node: Node) -> None:
    for number in range(4):
        await node.allocate("q", container=f"c{number}")
    before = node.held()
    assert await code_of(node.allocate("p", "q", container="late")) is Code.RESOURCE_EXHAUSTED
    assert node.held() == before
    assert await code_of(node.allocate("p", "q", container="c0")) is Code.ALREADY_EXISTS
    assert node.held() == before


async def test_static_addresses_the_gateway_and_an_index_can_be_asked_for(node: Node) -> None:
    given = await node.allocate("p", container="a", requested=("192.168.7.7",))
    assert (given[0].ip, given[0].gateway) == ("192.168.7.7/16", "192.168.0.1")
    assert await code_of(node.allocate("p", container="b", requested=("192.168.7.7",))) is Code.RESOURCE_EXHAUSTED
    gateway = await node.allocate("p", container="c", gateway=True)
    assert (gateway[0].ip, gateway[0].gateway) == ("192.168.0.1/16", "")
    assert (await node.allocate("p", container="d", index=4))[0].ip == "192.168.0.5/16"
    # None of them moved the rotation.
    assert (await node.allocate("p", container="e"))[0].ip == "192.168.0.2/16"


async def test_routes_go_through_the_gateway_each_once_and_sorted(node: Node) -> None:
    routes = ("5.5.0.0/24", "5.5.1.1/16", "1.0.0.0/30", "9.0.0.0/8", "5.5.0.0/16")
    node.view.configs["p"] = ippool(routes=routes, default_gateway=True)
    found = (await node.allocate("p"))[0]
    assert [one.dest for one in found.routes] == ["0.0.0.0/0", "1.0.0.0/30", "5.5.0.0/16", "5.5.0.0/24", "9.0.0.0/8"]
    assert not (await node.allocate("p", container="gw", gateway=True))[0].routes
    node.view.configs["p"] = ippool(routes=routes, default_gateway=True, gateway="")
    assert not (await node.allocate("p", container="none"))[0].routes


async def test_an_unreadable_route_is_the_pools_fault_and_gives_nothing(node: Node) -> None:
    node.view.configs["p"] = ippool(routes=("5.5.0.0",))
    assert await code_of(node.allocate("p")) is Code.INVALID_ARGUMENT
    assert not node.held()


def test_a_default_route_has_the_pools_family() -> None:
    assert routes_of(("2001:db8::/32",), True, 128) == ("::/0", "2001:db8::/32")


async def test_a_pool_that_cannot_be_used_is_an_internal_error(node: Node) -> None:
    node.view.unusable.add("bad")
    node.view.problems["bad"] = "startIP must be an address"
    with pytest.raises(Failed, match="startIP must be an address") as caught:
        await node.allocate("bad")
    assert caught.value.code is Code.INTERNAL


async def test_a_store_that_fails_is_an_internal_error(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*args: object) -> object:
        raise StoreFailed("disk full")

    monkeypatch.setattr(node.ledger, "allocate", fail)
    with pytest.raises(Failed, match="disk full") as caught:
        await node.allocate("p")
    assert caught.value.code is Code.INTERNAL


async def test_check_finds_what_add_gave_in_every_pool(node: Node) -> None:
    await node.allocate("p")
    await node.check("p")
    assert await code_of(node.check("p", "q")) is Code.NOT_FOUND
    assert await code_of(node.check("p", interface="other")) is Code.NOT_FOUND
    assert await code_of(node.check("p", kind=2)) is Code.NOT_FOUND


async def test_check_and_del_need_no_pool_any_more(node: Node) -> None:
    await node.allocate("p")
    node.view.configs.clear()
    await node.check("p")
    await node.release(pb.DeallocateRequest(parameters=parameters("p")))
    assert not node.held()
    assert await code_of(node.allocate("p")) is Code.NOT_FOUND


@pytest.mark.parametrize("pools", [["p"], []])
async def test_del_needs_container_and_interface_only(node: Node, pools: list[str]) -> None:
    await node.allocate("p", "q")
    await node.release(
        pb.DeallocateRequest(parameters=pb.IPAMParameters(pools=pools, cni_containerid="c1", cni_ifname="net1"))
    )
    assert node.held() == ({"fd00::1"} if pools else set())


async def test_a_pool_named_twice_is_one_pool(node: Node) -> None:
    assert await code_of(node.allocate("p", "p")) is Code.ALREADY_EXISTS
    await node.allocate("p")
    await node.check("p", "p")
    await collect(node, own_pb.CollectRequest(pools=["p", "p"]))
    assert len(node.collector.seen) == 1
    await node.release(pb.DeallocateRequest(parameters=parameters("p", "p")))
    assert not node.held()


async def test_del_of_nothing_is_no_failure(node: Node) -> None:
    await node.release(pb.DeallocateRequest(parameters=parameters("p", "unknown")))


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        pb.IPAMParameters(pools=["p"], cni_ifname="net1"),
        pb.IPAMParameters(pools=["p"], cni_containerid="c1"),
        pb.IPAMParameters(pools=["p", ""], cni_containerid="c1", cni_ifname="net1"),
        pb.IPAMParameters(pools=["a", "b", "c"], cni_containerid="c1", cni_ifname="net1"),
    ],
)
async def test_del_that_means_nobody_is_invalid(node: Node, wrong: pb.IPAMParameters | None) -> None:
    assert await code_of(node.release(pb.DeallocateRequest(parameters=wrong))) is Code.INVALID_ARGUMENT


async def test_a_caller_that_has_gone_gets_nothing(node: Node) -> None:
    gone = Call()
    gone.is_gone = True
    assert await code_of(node.allocate("p", call=gone)) is Code.CANCELLED
    late = Call(asyncio.get_running_loop().time() - 1)
    assert await code_of(node.allocate("p", call=late)) is Code.CANCELLED
    assert not node.held()


# Before the pools are known


async def test_add_waits_for_the_first_list_of_pools(node: Node) -> None:
    node.pools.synced.clear()
    call = asyncio.ensure_future(node.allocate("p", call=Call(asyncio.get_running_loop().time() + 60)))
    await asyncio.sleep(0.05)
    assert not call.done()
    node.pools.synced.set()
    node.readiness.changed()
    assert (await call)[0].ip == "192.168.0.2/16"


async def test_add_that_waits_too_long_is_to_be_tried_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.pools.synced.clear()
    wait, ends = node.readiness.wait, []

    async def noted(question: Any, until: float) -> bool:
        ends.append(until)
        return await wait(question, until)

    monkeypatch.setattr(node.readiness, "wait", noted)
    deadline = asyncio.get_running_loop().time() + 0.3
    assert await code_of(node.allocate("p", call=Call(deadline))) is Code.UNAVAILABLE
    # It gives up while the caller still listens, however slow the machine is.
    assert len(ends) == 1 and ends[0] < deadline


async def test_while_the_api_server_is_away_remembered_pools_are_served(node: Node) -> None:
    await node.allocate("p", container="before")
    node.pools.synced.clear()
    node.view.configs.clear()
    soon = Call(asyncio.get_running_loop().time() + 0.2)
    assert await code_of(node.allocate("p", call=soon)) is Code.UNAVAILABLE
    node.readiness.unanswered("refused")
    assert (await node.allocate("p"))[0].ip == "192.168.0.3/16"
    soon = Call(asyncio.get_running_loop().time() + 0.2)
    assert await code_of(node.allocate("q", call=soon)) is Code.UNAVAILABLE
    await node.check("p")


async def test_nothing_is_given_while_a_damaged_store_is_being_repaired(node: Node) -> None:
    node.readiness.must_recover = True
    soon = Call(asyncio.get_running_loop().time() + 0.2)
    assert await code_of(node.allocate("p", call=soon)) is Code.UNAVAILABLE
    call = asyncio.ensure_future(node.allocate("p"))
    await asyncio.sleep(0.02)
    node.readiness.must_recover = False
    node.readiness.changed()
    assert (await call)[0].ip == "192.168.0.2/16"


# GC and STATUS


async def collect(node: Node, request: own_pb.CollectRequest) -> own_pb.CollectResponse:
    return own_pb.CollectResponse.FromString(await node.handlers[OWN + b"Collect"](request.SerializeToString(), Call()))


async def test_gc_judges_what_is_not_listed_in_the_networks_pools(node: Node) -> None:
    for container in ("a", "b", "c"):
        await node.allocate("p", container=container)
    await node.allocate("q", container="other")
    await node.allocate("p", container="cidr", kind=2)
    valid = [own_pb.Attachment(container_id="a", ifname="net1"), own_pb.Attachment(container_id="b", ifname="net2")]
    answer = await collect(node, own_pb.CollectRequest(pools=["p"], valid=valid))
    assert {one.container_id for one in node.collector.seen} == {"b", "c"}
    assert (answer.released, answer.kept) == (1, 1)


async def test_gc_before_pods_are_known_is_to_be_tried_again(node: Node) -> None:
    node.pools.synced.clear()
    assert await code_of(collect(node, own_pb.CollectRequest(pools=["p"]))) is Code.UNAVAILABLE


async def test_status_says_whether_an_add_would_be_served(node: Node) -> None:
    async def status(*pools: str, kind: int = 1) -> own_pb.StatusResponse:
        request = own_pb.StatusRequest(pools=pools, pool_type=kind)  # type: ignore[arg-type]
        soon = Call(asyncio.get_running_loop().time() + 0.2)
        answer = await node.handlers[OWN + b"Status"](request.SerializeToString(), soon)
        return own_pb.StatusResponse.FromString(answer)

    found = await status("p", "q")
    assert [(one.pool, one.capacity, one.used, one.free) for one in found.pools] == [("p", 7, 0, 7), ("q", 4, 0, 4)]
    assert not (await status()).pools
    assert await code_of(status("missing")) is Code.NOT_FOUND
    assert await code_of(status("p", "q", "p")) is Code.INVALID_ARGUMENT
    await node.allocate("p", kind=2)
    assert await code_of(status("p", kind=2)) is Code.RESOURCE_EXHAUSTED
    node.pools.synced.clear()
    assert await code_of(status("p")) is Code.UNAVAILABLE


# Any message


words = st.text(max_size=6) | st.sampled_from(["p", "q", "c1", "net1", "192.168.0.3", "fd00::2", "10.1.0.2"])
any_parameters = st.builds(
    pb.IPAMParameters,
    pools=st.lists(words, max_size=3),
    cni_containerid=words,
    cni_ifname=words,
    metadata=st.none()
    | st.builds(pb.IPAMMetadata, k8s_pod_name=words, k8s_pod_namespace=words, k8s_pod_uid=words, device_id=words),
    pool_type=st.sampled_from([0, 1, 2, 9]),
    requested_ips=st.lists(words, max_size=3),
    features=st.none()
    | st.builds(
        pb.IPAMFeatures,
        allocate_default_gateway=st.booleans(),
        allocate_ip_with_index=st.none() | st.integers(-(2**31), 2**31 - 1),
    ),
)
any_message = (
    st.builds(lambda one: pb.AllocateRequest(parameters=one).SerializeToString(), any_parameters)
    | st.binary(max_size=100)
    | st.builds(
        lambda one, at, byte: _damaged(pb.AllocateRequest(parameters=one).SerializeToString(), at, byte),
        any_parameters,
        st.integers(0, 200),
        st.integers(0, 255),
    )
)


def _damaged(message: bytes, at: int, byte: int) -> bytes:
    at %= len(message) or 1
    return message[:at] + bytes([byte]) + message[at + 1 :]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 4), any_message), max_size=15))
def test_any_message_ends_with_a_status(tmp_path: Path, sent: list[tuple[int, bytes]]) -> None:
    async def play() -> None:
        for old in tmp_path.iterdir():
            old.unlink()
        ledger = await Ledger.open(tmp_path / "store", clock=SystemClock())
        node = Node(ledger)
        methods = list(node.handlers.values())
        for which, message in sent:
            call = Call(asyncio.get_running_loop().time() + 5)
            assert await code_of(methods[which](message, call)) in Code
        addresses = [(one.pool, one.address) for one in ledger.reservations()]
        assert len(addresses) == len(set(addresses))
        await ledger.close()

    asyncio.run(play())
