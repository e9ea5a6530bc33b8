"""Pure decisions about addresses: which node carries one, and which calls lead from what there is to what is wanted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.cloud.providers.oxide.values import floating, owner, service

from bedplate.api import core, meta
from bedplate.cloud.interface import Target
from bedplate.cloud.providers.oxide import models, names, ownership, placement, plan, wants

# Placement


def target(name: str, number: int, **changes: Any) -> Target:
    identifier = f"{number:08d}-0000-4000-8000-000000000000"
    made = core.Node(metadata=meta.ObjectMeta(name=name), spec=core.NodeSpec(provider_id=f"oxide://{identifier}"))
    return Target(made, **changes)


services = st.lists(
    st.tuples(st.frozensets(st.integers(1, 4), min_size=1, max_size=2), st.integers(0, 5)), min_size=1, max_size=8
)


@given(services, st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=6), st.data())
def test_a_chosen_node_is_of_the_best_and_never_clashes(
    others: list[tuple[frozenset[int], int]], tiers: list[int], data: st.DataObject
) -> None:
    targets = [
        target(f"n{number}", number, is_ready=tier < 2, has_endpoints=tier == 0) for number, tier in enumerate(tiers)
    ]
    nodes = placement.candidates(targets)
    by_number = dict(enumerate(nodes))
    occupants = [
        placement.Occupant(
            f"u{index}",
            frozenset((port, "TCP") for port in ports),
            (f"{index}", f"u{index}"),
            frozenset({by_number[where].instance}) if where in by_number else frozenset(),
        )
        for index, (ports, where) in enumerate(others)
    ]
    asker = placement.Asker(
        "me",
        frozenset((port, "TCP") for port in data.draw(st.frozensets(st.integers(1, 4), min_size=1))),
        (data.draw(st.sampled_from(["0", "9"])), "me"),
        current=tuple(data.draw(st.lists(st.sampled_from([one.instance for one in nodes]), max_size=1))),
    )
    choice = placement.choose(asker, nodes, occupants, {}, {})
    best = min(tiers)
    free = [
        one
        for one in nodes
        if one.tier == best
        and not any(other.ports & asker.ports and one.instance in other.touches for other in occupants)
    ]
    if choice.candidate is None:
        assert choice.is_clash and not free and choice.clashing
        return
    assert choice.candidate.tier == best
    if free:
        assert choice.candidate in free
        stay = [one for one in free if one.instance in asker.current]
        assert not stay or choice.candidate in stay
    else:
        assert choice.candidate.instance in asker.current


def test_a_reservation_counts_before_the_cloud_shows_it() -> None:
    nodes = placement.candidates([target("n1", 1), target("n2", 2)])
    ports = frozenset({(80, "TCP")})
    moving = placement.Occupant("other", ports, ("1", "other"), frozenset({nodes[0].instance}), nodes[1].instance)
    asker = placement.Asker("me", ports, ("2", "me"))
    assert placement.choose(asker, nodes, [moving], {}, {}).is_clash
    staying = placement.Asker("me", ports, ("2", "me"), current=(nodes[0].instance,))
    assert placement.choose(staying, nodes, [moving], {}, {}).candidate == nodes[0]


def test_seniority_is_age_then_uid() -> None:
    old = core.Service(metadata=meta.ObjectMeta(uid="b", creation_timestamp=datetime(2025, 1, 1, tzinfo=UTC)))
    new = core.Service(metadata=meta.ObjectMeta(uid="a", creation_timestamp=datetime(2026, 1, 1, tzinfo=UTC)))
    assert placement.seniority(old) < placement.seniority(new) < placement.seniority(core.Service())


# Plans: whatever there is, a plan ends, ends right, and touches nothing of others

ADDRESSES = ["198.18.0.1", "198.18.0.2", "fd00::1", "fd00::2"]
records = st.one_of(
    st.none(),
    st.builds(
        ownership.Record,
        st.builds(
            ownership.Owner,
            st.sampled_from(["c1", "c2"]),
            st.sampled_from(["u1", "u2"]),
            st.just("shop"),
            st.sampled_from(["web", "api"]),
        ),
        st.sampled_from(["managed", "retained"]),
    ),
)
all_names = list(names.all_names("prod", owner()))


@st.composite
def projects(draw: st.DrawFn) -> list[models.FloatingIp]:
    found = []
    for index, name in enumerate(draw(st.lists(st.sampled_from(all_names), unique=True, max_size=5))):
        record = draw(records)
        if record is not None and record.role == "retained" and not name.endswith("-web"):
            # What is kept never keeps a name that is needed for others.
            name = names.kept_name(name, f"id-{index}")
        plain = draw(st.sampled_from(["", ownership.LEGACY_DESCRIPTION]))
        found.append(
            models.FloatingIp(
                id=f"id-{index}",
                name=name,
                description=ownership.write(record) if record is not None else plain,
                ip=draw(st.sampled_from(ADDRESSES)),
                ip_pool_id=draw(st.sampled_from(["pool-1", "pool-2"])),
                instance_id=draw(st.sampled_from([None, "node-1", "node-2", "stranger"])),
            )
        )
    return found


ASKS: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {}),
    ({wants.POOL: "big"}, {}),
    ({wants.ADDRESS: "198.18.0.2"}, {}),
    ({wants.VERSION: "v6"}, {}),
    ({}, {"ip_family_policy": "RequireDualStack", "ip_families": ("IPv4", "IPv6")}),
]


def _is_of(whose: ownership.Owner, one: models.FloatingIp) -> bool:
    record = ownership.parse(one.description)
    return record is not None and record.owner.is_same_service(whose)


@given(projects(), st.sampled_from(ASKS), st.booleans())
def test_a_plan_ends_with_what_is_wanted_and_leaves_others_alone(
    ips: list[models.FloatingIp], asked: tuple[dict[str, str], dict[str, Any]], is_retained: bool
) -> None:
    given_ = service(asked[0], **asked[1])
    ask = wants.read(given_)
    pool = models.Pool("pool-2", "big", "v4") if ask.pool else None
    want = plan.Want(
        owner(),
        wants.slots(ask, given_, "prod", owner(), pool, {}),
        instance="node-1",
        nodes=frozenset({"node-1", "node-2"}),
        legacy_name="prod-shop-web",
        is_retained=is_retained,
    )
    before = {one.id: one for one in ips}
    state: tuple[models.FloatingIp, ...] = tuple(ips)
    try:
        for step in plan.plan(want, ips):
            if not isinstance(step, plan.Create):
                assert _may_touch(before.get(step.ip.id, step.ip), want), step
            state = plan.predict(step, state)
    except plan.FloatingIpNotOwned:
        assert any(one.name in all_names and not _is_of(want.owner, one) for one in ips)
        return
    own = plan.owned(want.owner, state)
    assigned = plan.assign(want, own)
    assert len(assigned) == len(want.slots) == len(own)
    assert all(slot.matches(one) and one.instance_id == "node-1" for slot, one in assigned.items())
    assert len({one.name for one in state}) == len(state)


def _may_touch(one: models.FloatingIp, want: plan.Want) -> bool:
    """S6, said once more and differently."""
    found = ownership.parse(one.description)
    if found is None:
        is_near = one.instance_id in (None, "node-1", "node-2")
        return one.description == ownership.LEGACY_DESCRIPTION and one.name == "prod-shop-web" and is_near
    return found.owner.cluster == "c1" and (found.owner.service == "u1" or found.owner.name == "web")


def test_what_is_kept_for_a_service_is_not_deleted_when_it_does_not_fit() -> None:
    kept = floating(description=ownership.write(ownership.Record(owner(service="gone"), "retained")), ip="198.18.0.9")
    given_ = service({wants.ADDRESS: "198.18.0.2"})
    slots = wants.slots(wants.read(given_), given_, "prod", owner(), None, {})
    steps = plan.plan(plan.Want(owner(), slots, instance="node-1"), [kept])
    assert [type(step) for step in steps] == [plan.Create, plan.Attach]
    assert isinstance(steps[0], plan.Create) and steps[0].name == slots[0].names.spare


def test_of_two_that_fit_the_one_with_the_lasting_name_is_kept() -> None:
    slots = wants.slots(wants.read(service()), service(), "prod", owner(), None, {})
    main, spare = floating(instance_id=None), floating(slots[0].names.spare, id="a", instance_id="node-1")
    steps = plan.plan(plan.Want(owner(), slots, instance="node-1"), [spare, main])
    assert steps[0] == plan.Attach(main, "node-1")
    assert [type(step) for step in steps[1:]] == [plan.Detach, plan.Delete]


def test_only_a_node_with_addresses_of_the_family_is_chosen() -> None:
    def dual(name: str, number: int, *addresses: str) -> Target:
        plain = target(name, number).node
        shown = tuple(core.NodeAddress("InternalIP", address) for address in addresses)
        return Target(core.Node(metadata=plain.metadata, spec=plain.spec, status=core.NodeStatus(addresses=shown)))

    nodes = placement.candidates(
        [dual("n1", 1, "10.0.0.1"), dual("n2", 2, "10.0.0.2", "fd00::2"), dual("n3", 3, "10.0.0.3")]
    )
    for number in range(20):
        asker = placement.Asker(f"u{number}", frozenset(), ("", ""), families=frozenset({"v4", "v6"}))
        choice = placement.choose(asker, nodes, [], {}, {})
        assert choice.candidate is not None and choice.candidate.node.name == "n2"
