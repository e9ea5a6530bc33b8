"""C4: which address a Service gets, keeps and gives back; the pool never gives one address twice."""

from __future__ import annotations

import asyncio
import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.api import core, meta
from bedplate.cloud.errors import CloudError
from bedplate.cloud.interface import LoadBalancers
from bedplate.cloud.providers.cloudlycke import pool as pools
from bedplate.core import errors
from bedplate.runtime.cache import Cache

from .builders import provider, service, services, target, write

POOL = ipaddress.IPv4Network("192.168.20.200/29")
CLUSTER = "kubernetes-2"


def balancers(cache: Cache[core.Service], config: Path | None = None, **setting: object) -> LoadBalancers:
    found = provider(config, services=cache, **setting).load_balancers
    assert found is not None
    return found


def _ip(status: core.LoadBalancerStatus | None) -> str:
    assert status is not None
    (ingress,) = status.ingress
    return ingress.ip


async def test_an_address_is_given_kept_and_freed() -> None:
    web = service("web")
    cache = services(web)
    cloud = balancers(cache)
    assert await cloud.get(CLUSTER, web) is None
    address = _ip(await cloud.ensure(CLUSTER, web, [target("node-c2-1")]))
    assert ipaddress.IPv4Address(address) in POOL
    assert _ip(await cloud.ensure(CLUSTER, web, [])) == address == _ip(await cloud.get(CLUSTER, web))
    await cloud.delete(CLUSTER, web)
    assert await cloud.get(CLUSTER, web) is None
    await cloud.delete(CLUSTER, web)


async def test_a_full_pool_is_an_error_until_an_address_is_freed() -> None:
    eight = [service(f"web-{number}") for number in range(8)]
    cache = services(*eight)
    cloud = balancers(cache)
    given_out = {_ip(await cloud.ensure(CLUSTER, each, [])) for each in eight}
    assert given_out == {str(address) for address in POOL}
    ninth = service("ninth")
    with pytest.raises(CloudError, match="all 8 addresses"):
        await cloud.ensure(CLUSTER, ninth, [])
    freed = _ip(await cloud.get(CLUSTER, eight[3]))
    await cloud.delete(CLUSTER, eight[3])
    assert _ip(await cloud.ensure(CLUSTER, ninth, [])) == freed


async def test_a_restarted_manager_reads_the_addresses_back_from_the_statuses() -> None:
    first = [service(f"web-{number}") for number in range(7)]
    cloud = balancers(services(*first))
    addresses = {each.name: _ip(await cloud.ensure(CLUSTER, each, [])) for each in first}
    again = [service(each.name, address=addresses[each.name]) for each in first]
    reborn = balancers(services(*again, service("new")))
    # The newcomer asks first, when memory is still empty.
    new = _ip(await reborn.ensure(CLUSTER, service("new"), []))
    assert new not in addresses.values()
    assert {each.name: _ip(await reborn.ensure(CLUSTER, each, [])) for each in again} == addresses
    assert _ip(await reborn.get(CLUSTER, again[2])) == addresses["web-2"]


async def test_addresses_do_not_depend_on_who_asks_first_while_there_is_room() -> None:
    one, two = service("one"), service("two")
    forward, backward = balancers(services(one, two)), balancers(services(one, two))
    ahead = {each.name: _ip(await forward.ensure(CLUSTER, each, [])) for each in (one, two)}
    back = {each.name: _ip(await backward.ensure(CLUSTER, each, [])) for each in (two, one)}
    assert ahead == back


async def test_an_address_is_not_given_before_the_services_are_known() -> None:
    cache: Cache[core.Service] = Cache()
    cloud = balancers(cache, timeout_s=0.05)
    with pytest.raises(CloudError, match="have not been listed yet"):
        await cloud.ensure(CLUSTER, service("web"), [])


async def test_services_asked_for_at_once_get_different_addresses() -> None:
    eight = [service(f"web-{number}") for number in range(8)]
    cloud = balancers(services(*eight))
    found = await asyncio.gather(*(cloud.ensure(CLUSTER, each, []) for each in eight))
    assert len({_ip(status) for status in found}) == 8


async def test_an_address_asked_for_is_given_when_it_is_free_and_in_the_pool() -> None:
    cloud = balancers(services())
    wanted = service("a", asks="192.168.20.203")
    assert _ip(await cloud.ensure(CLUSTER, wanted, [])) == "192.168.20.203"
    with pytest.raises(CloudError, match="taken"):
        await cloud.ensure(CLUSTER, service("b", asks="192.168.20.203"), [])
    with pytest.raises(errors.Invalid, match="not in the pool"):
        await cloud.ensure(CLUSTER, service("c", asks="10.0.0.1"), [])
    moved = service("a", asks="192.168.20.204", address="192.168.20.203")
    assert _ip(await cloud.ensure(CLUSTER, moved, [])) == "192.168.20.204"
    assert _ip(await cloud.ensure(CLUSTER, service("b", asks="192.168.20.203"), [])) == "192.168.20.203"


async def test_addresses_of_nodes_are_never_given_out() -> None:
    nodes: Cache[core.Node] = Cache()
    status = core.NodeStatus(addresses=(core.NodeAddress(type="InternalIP", address="192.168.20.203"),))
    nodes.replace([core.Node(metadata=meta.ObjectMeta(name="n"), status=status)], "1")
    cloud = balancers(services(), nodes=nodes)
    found = {_ip(await cloud.ensure(CLUSTER, service(f"web-{number}"), [])) for number in range(7)}
    assert "192.168.20.203" not in found
    with pytest.raises(CloudError):
        await cloud.ensure(CLUSTER, service("eighth"), [])


async def test_updates_record_the_hosts_and_leave_the_address() -> None:
    web = service("web")
    cloud = balancers(services(web))
    with pytest.raises(CloudError, match="no load balancer"):
        await cloud.update(CLUSTER, web, [target("a")])
    address = _ip(await cloud.ensure(CLUSTER, web, [target("b"), target("a")]))
    assert cloud.hosts(web) == ("a", "b")  # type: ignore[attr-defined]
    assert await cloud.update(CLUSTER, web, [target("c")]) is None
    assert cloud.hosts(web) == ("c",)  # type: ignore[attr-defined]
    assert _ip(await cloud.get(CLUSTER, web)) == address


async def test_of_two_services_with_one_address_the_older_keeps_it() -> None:
    old, young = (service(name, address="192.168.20.201", age=age) for name, age in (("old", 60), ("young", 5)))
    cloud = balancers(services(young, old))
    assert _ip(await cloud.ensure(CLUSTER, young, [])) != "192.168.20.201"
    assert _ip(await cloud.ensure(CLUSTER, old, [])) == "192.168.20.201"


async def test_a_process_that_does_not_lead_gives_and_frees_nothing() -> None:
    def refuse() -> None:
        raise errors.Terminal("not the leader")

    web = service("web")
    cloud = balancers(services(web), guard=refuse)
    with pytest.raises(errors.Terminal, match="not the leader"):
        await cloud.ensure(CLUSTER, web, [])
    with pytest.raises(errors.Terminal, match="not the leader"):
        await cloud.delete(CLUSTER, web)
    assert await cloud.get(CLUSTER, web) is None


async def test_a_dry_run_says_the_address_and_keeps_nothing() -> None:
    web = service("web")
    cloud = balancers(services(web), is_dry_run=True)
    assert ipaddress.IPv4Address(_ip(await cloud.ensure(CLUSTER, web, []))) in POOL
    assert await cloud.get(CLUSTER, web) is None
    await cloud.delete(CLUSTER, web)


async def test_nothing_is_given_or_freed_during_an_outage(tmp_path: Path) -> None:
    path = write(tmp_path / "cloud.yaml", "instances: []")
    web = service("web")
    cloud = balancers(services(web), path)
    address = _ip(await cloud.ensure(CLUSTER, web, []))
    write(path, "apiError: true")
    for call in (cloud.ensure(CLUSTER, service("b"), []), cloud.delete(CLUSTER, web), cloud.get(CLUSTER, web)):
        with pytest.raises(CloudError):
            await call
    write(path, "instances: []")
    assert _ip(await cloud.get(CLUSTER, web)) == address


def test_load_balancers_can_be_switched_off(tmp_path: Path) -> None:
    assert provider(write(tmp_path / "c.yaml", "loadBalancer: {enabled: false}")).load_balancers is None


@pytest.mark.parametrize(("families", "policy"), [(("IPv6",), "SingleStack"), (("IPv4", "IPv6"), "RequireDualStack")])
async def test_what_needs_ipv6_is_refused(families: tuple[str, ...], policy: str) -> None:
    asked = core.Service(
        metadata=meta.ObjectMeta(name="six", namespace="shop", uid="uid-six"),
        spec=core.ServiceSpec(type="LoadBalancer", ip_families=families, ip_family_policy=policy),
    )
    with pytest.raises(errors.Invalid, match="IPv4 addresses only"):
        await balancers(services(asked)).ensure(CLUSTER, asked, [])


def test_names_are_short_and_differ_between_clusters_namespaces_and_services() -> None:
    cloud = balancers(services())
    names = {
        cloud.name(cluster, service(name, namespace=namespace))
        for cluster in ("one", "two")
        for namespace in ("shop", "desk")
        for name in ("web", "db")
    }
    assert len(names) == 8 and all(len(name) <= 32 for name in names)


@given(st.lists(st.tuples(st.sampled_from(["ensure", "delete", "restart"]), st.integers(0, 11)), max_size=60))
def test_the_pool_never_gives_one_address_to_two_services(steps: list[tuple[str, int]]) -> None:
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, int]]) -> None:
    cache = services()
    cloud = balancers(cache)
    published: dict[str, str] = {}
    for what, number in steps:
        name = f"web-{number}"
        asked = service(name, address=published.get(name, ""))
        if what == "restart":
            cloud = balancers(cache)
        elif what == "delete":
            await cloud.delete(CLUSTER, asked)
            published.pop(name, None)
        else:
            try:
                published[name] = _ip(await cloud.ensure(CLUSTER, asked, []))
            except CloudError:
                assert len(published) == 8 and name not in published
        cache.replace([service(each, address=address) for each, address in published.items()], "1")
        assert len(set(published.values())) == len(published)
        assert all(ipaddress.IPv4Address(address) in POOL for address in published.values())


def test_a_choice_depends_on_nothing_but_its_arguments() -> None:
    web = service("web")
    first = pools.choose(web, {}, POOL)
    assert pools.choose(web, {}, POOL) == first
    assert pools.choose(web, {first: "somebody"}, POOL) == POOL[(int(first) - int(POOL[0]) + 1) % 8]
