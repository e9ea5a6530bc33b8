"""The service controller in random histories, with a clock of its own.

Whatever users, nodes, the cloud, the API server and restarts do: in the end every wanted Service has exactly one load
balancer with the right targets, finalizer and status, on a node that is ready if there is one, and no other load
balancer is left.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cloud.controllers.balancers import StickyBalancers
from tests.cloud.controllers.serviceworld import World

from bedplate.api import names
from bedplate.cloud.errors import CloudError, RetryError
from bedplate.core import errors, logging

FINALIZER = names.FINALIZER_LOAD_BALANCER


@pytest.fixture(autouse=True, scope="module")
def plain_logs() -> Iterator[None]:
    """Tracebacks of planted bugs as one line each: drawn for people, they would take most of the time."""
    logging.configure(logging.LogOptions(format="json"), io.StringIO())
    yield
    logging.configure(logging.LogOptions())


service_names = st.sampled_from(("one", "two"))
node_names = st.sampled_from(("a", "b"))
ERRORS = (CloudError("no"), RetryError("later", 3.0), KeyError("bug"), errors.Denied("403"))
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(("want", "unwant", "reclass", "delete", "edit")), service_names),
    st.tuples(st.sampled_from(("ready", "unready", "exclude", "remove")), node_names),
    st.tuples(
        st.just("cloud"), st.sampled_from(("get", "ensure", "ensured", "update", "delete")), st.sampled_from(ERRORS)
    ),
    st.tuples(st.just("api"), st.sampled_from(("before", "after"))),
    st.tuples(st.just("wait"), st.sampled_from((0.0, 0.1, 7.0, 40.0, 400.0))),
    st.tuples(st.just("kill")),
)
PACES = st.sampled_from(("late", "one", "all", "settled", "settled"))
"""What the caches have heard before the next operation: nothing, one event, all; or all, and it was worked on."""
HISTORIES = st.lists(st.tuples(OPERATIONS, PACES), max_size=40)


async def play(history: list[tuple[tuple[Any, ...], str]], *, needs_ready: bool) -> World:
    one = World(needs_ready=needs_ready, providers=2, load_balancer_class=("two=second",))
    if needs_ready:
        one.clouds[0].load_balancers = StickyBalancers()
    for cloud in one.clouds[1:]:
        assert cloud.load_balancers is not None
        cloud.load_balancers.script = one.balancers.script
    await one.start()
    try:
        for operation, pace in history:
            await _operate(one, *operation)
            one.api.deliver(one.caches, {"late": 0, "one": 1}.get(pace, 1_000_000))
            if pace == "settled":
                await one.after(1.2)
        one.balancers.script.clear()
        one.api.faults.clear()
        await one.after(400)
    finally:
        await one.kill()
    return one


async def _operate(one: World, verb: str, *what: Any) -> None:
    api = one.api
    match verb, *what:
        case "want", name:
            api.put_service(name, type="LoadBalancer")
        case "unwant", name if f"n/{name}" in api.services:
            api.put_service(name, type="ClusterIP")
        case "reclass", name:
            # A class can be changed only together with the type; the watch may show both at once.
            api.put_service(name, type="ClusterIP")
            api.put_service(name, type="LoadBalancer", load_balancer_class="two")
        case "edit", name if f"n/{name}" in api.services:
            annotations = api.services[f"n/{name}"].metadata.annotations
            api.put_service(name, annotations={} if annotations else {"edited": "yes"})
        case "delete", name:
            api.delete_service(name)
        case "ready" | "unready", name:
            api.put_node(name, ready=verb == "ready")
        case "exclude", name if name in api.nodes:
            api.put_node(name, labels={names.LABEL_EXCLUDE_FROM_LOAD_BALANCERS: "true"})
        case "remove", name:
            api.delete_node(name)
        case "cloud", step, error:
            one.balancers.script.setdefault(step, []).append(error)
        case "api", when:
            api.faults.append(when)
        case "wait", seconds:
            await one.time.advance(seconds)
        case "kill", *_:
            await one.kill()
            await one.start()


def judge(one: World) -> None:
    stable = sorted(name for name, node in one.api.nodes.items() if not node.metadata.labels)
    held = {
        (cloud.name, key): balancer
        for cloud in one.clouds
        if cloud.load_balancers is not None
        for key, balancer in cloud.load_balancers.held.items()
    }
    wanted: set[tuple[str, str]] = set()
    for key, service in one.api.services.items():
        is_wanted = service.spec.type == "LoadBalancer"
        ingress = service.status.load_balancer.ingress
        assert (FINALIZER in service.metadata.finalizers) is is_wanted, key
        assert not service.metadata.is_deleting, key
        assert bool(ingress) is is_wanted, key
        if is_wanted:
            owner = "second" if service.spec.load_balancer_class else "scripted"
            wanted.add((owner, key))
            balancer = held[owner, key]
            assert balancer.uid == service.metadata.uid
            assert balancer.address == ingress[0].ip
            # The second cloud has no machines here.
            assert balancer.hosts == (stable if owner == "scripted" else [])
            if owner == "scripted" and isinstance(one.balancers, StickyBalancers):
                able = {name for name in stable if one.api.nodes[name].is_ready}
                assert one.balancers.carriers(service) <= able
                assert bool(one.balancers.carriers(service)) is bool(able), "a node could carry it"
    assert set(held) == wanted


@settings(max_examples=80)
@given(HISTORIES, st.booleans())
def test_every_history_ends_with_exactly_the_wanted_balancers(history: list[Any], ready: bool) -> None:
    judge(asyncio.run(play(history, needs_ready=ready)))


@pytest.mark.soak
@settings(max_examples=10_000)
@given(st.lists(st.tuples(OPERATIONS, PACES), max_size=120), st.booleans())
def test_every_long_history_ends_with_exactly_the_wanted_balancers(history: list[Any], ready: bool) -> None:
    judge(asyncio.run(play(history, needs_ready=ready)))
