"""The decisions without a cloud: names, records, provider IDs, annotations, placement, plans, status."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.api import core, meta
from bedplate.cloud.interface import Target, same_status
from bedplate.cloud.providers.oxide import balancers, models, names, ownership, placement, plan, providerid, wants
from bedplate.core import errors

UUID = "0a0b0c0d-1111-4222-8333-444455556666"
OXIDE_NAME = re.compile(r"[a-z]([a-zA-Z0-9-]*[a-zA-Z0-9]+)?")
label = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


def owner(**changes: str) -> ownership.Owner:
    values = {"cluster": "c1", "service": "u1", "namespace": "shop", "name": "web"} | changes
    return ownership.Owner(**values)


def floating(name: str = "prod-shop-web", **changes: Any) -> models.FloatingIp:
    values: dict[str, Any] = {
        "id": f"id-{name}",
        "name": name,
        "description": ownership.write(ownership.Record(owner(), "managed")),
        "ip": "198.18.0.1",
        "ip_pool_id": "pool-1",
    }
    return models.FloatingIp(**{**values, **changes})


def service(annotations: dict[str, str] | None = None, **spec: Any) -> core.Service:
    return core.Service(
        metadata=meta.ObjectMeta(name="web", namespace="shop", uid="u1", annotations=annotations or {}),
        spec=core.ServiceSpec(type="LoadBalancer", **spec),
    )


# Provider IDs


def test_provider_ids_are_read_and_written() -> None:
    assert providerid.instance_id(f"oxide://{UUID}") == UUID
    assert providerid.instance_id(f"oxide://{UUID.upper()}") == UUID.upper()
    assert providerid.format_id(UUID) == f"oxide://{UUID}"
    assert providerid.same(UUID, UUID.upper()) and not providerid.same(None, None) and not providerid.same("", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (UUID, "does not have 'oxide://' prefix"),
        (f"aws://{UUID}", "does not have 'oxide://' prefix"),
        ("oxide://", "contains invalid uuid"),
        ("oxide://web-1", "contains invalid uuid"),
        (f"oxide:///{UUID}", "contains invalid uuid"),
    ],
)
def test_bad_provider_ids_say_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(errors.Invalid, match=said):
        providerid.instance_id(text)


# Names


@given(st.text(max_size=80), label, label, st.sampled_from(["", "v6"]))
def test_every_name_is_one_that_oxide_takes(cluster: str, namespace: str, name: str, suffix: str) -> None:
    made = names.names_of(cluster, owner(namespace=namespace, name=name), suffix)
    for one in (made.main, made.spare, made.replacement):
        assert len(one) <= 63 and OXIDE_NAME.fullmatch(one) and not providerid.is_uuid(one)
    assert len({made.main, made.spare, made.replacement}) == 3


def test_short_names_are_the_originals() -> None:
    assert names.main_name("kubernetes", "default", "web") == "kubernetes-default-web"
    assert names.legacy_name("k", "n" * 63, "s") == ("k-" + "n" * 61)
    assert names.legacy_name("k", "n" * 60, "-x").endswith("n")


def test_names_that_had_to_be_cut_or_mended_differ_where_the_services_do() -> None:
    long = {names.main_name("prod", "n" * 63, "s" * 62 + end) for end in "abc"}
    assert len(long) == 3
    assert names.main_name("Prod", "a", "b") != names.main_name("prod", "a", "b")
    assert names.main_name("1", "a", "b") != names.main_name("2", "a", "b")
    uuid_like = names.main_name("aaaaaaaa", "bbbb", "cccc-dddd-eeeeeeeeeeee")
    assert not providerid.is_uuid(uuid_like)


def test_two_clusters_of_one_name_have_different_spare_names() -> None:
    one, other = names.names_of("prod", owner()), names.names_of("prod", owner(cluster="c2"))
    assert one.main == other.main
    assert one.spare != other.spare and one.replacement != other.replacement


def test_all_names_hold_every_name_that_may_be_used() -> None:
    found = names.all_names("prod", owner())
    for suffix in ("", "v6"):
        made = names.names_of("prod", owner(), suffix)
        assert {made.main, made.spare, made.replacement} <= set(found)


# Records


@given(
    label,
    label,
    st.uuids(),
    st.uuids(),
    st.sampled_from(["managed", "adopted", "retained"]),
    st.text(max_size=60).filter(lambda text: "[bedplate" not in text and text == text.strip()),
)
def test_a_record_is_read_as_it_was_written(
    namespace: str, name: str, cluster: Any, uid: Any, role: ownership.Role, words: str
) -> None:
    record = ownership.Record(
        ownership.Owner(str(cluster), str(uid), namespace, name), role, words if role == "adopted" else ""
    )
    text = ownership.write(record)
    assert len(text) <= 512
    assert ownership.parse(text) == record


@pytest.mark.parametrize(
    "text",
    [
        "",
        "something",
        ownership.LEGACY_DESCRIPTION,
        "[bedplate cluster=c service=s name=n role=managed]",
        "[bedplate cluster=c service=s name=a/n role=managed] and more",
        "[bedplate cluster=c service=s name=a/n role=mine]",
        "[bedplate cluster= service=s name=a/n role=managed]",
    ],
)
def test_what_is_no_record_proves_nothing(text: str) -> None:
    assert ownership.parse(text) is None


def test_a_record_that_does_not_fit_or_names_nobody_is_refused() -> None:
    with pytest.raises(errors.Invalid, match="no room"):
        ownership.write(ownership.Record(owner(), "adopted", "x" * 500))
    with pytest.raises(errors.Invalid, match="belong"):
        ownership.write(ownership.Record(owner(cluster=""), "managed"))


# Annotations


@pytest.mark.parametrize(
    ("annotations", "allocators"),
    [
        ({}, [{"type": "auto"}, {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}]),
        ({wants.ADDRESS: "198.18.1.1"}, [{"type": "explicit", "ip": "198.18.1.1"}]),
        ({wants.ADDRESS: "fd00::1"}, [{"type": "explicit", "ip": "fd00::1"}]),
        ({wants.POOL: "big"}, [{"type": "auto", "pool_selector": {"type": "explicit", "pool": "big"}}]),
        ({wants.VERSION: "v4"}, [{"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}]),
        ({wants.VERSION: "v6"}, [{"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v6"}}]),
        ({wants.NAME: "mine"}, []),
    ],
)
def test_annotations_make_the_allocator(annotations: dict[str, str], allocators: list[Any]) -> None:
    ask = wants.read(service(annotations))
    pool = models.Pool("pool-1", "big", "v4") if ask.pool else None
    [slot] = wants.slots(ask, service(annotations), "prod", owner(), pool, {})
    assert list(slot.allocators) == allocators


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({wants.ADDRESS: "198.18.1.1", wants.POOL: "p"}, f"{wants.ADDRESS} is mutually exclusive"),
        ({wants.ADDRESS: "198.18.1.1", wants.VERSION: "v4"}, f"{wants.ADDRESS} is mutually exclusive"),
        ({wants.POOL: "p", wants.VERSION: "v4"}, f"{wants.POOL} is mutually exclusive with {wants.VERSION}"),
        ({wants.NAME: "x", wants.POOL: "p"}, f"{wants.NAME} is mutually exclusive"),
        ({wants.VERSION: "6"}, f'invalid {wants.VERSION} value "6", must be "v4" or "v6"'),
        ({wants.ADDRESS: "web"}, f'invalid {wants.ADDRESS} value "web"'),
        ({wants.RETAIN: "yes"}, f'invalid {wants.RETAIN} value "yes"'),
        ({wants.NAME: "a,b,c"}, f"{wants.NAME} takes one name"),
    ],
)
def test_contradictions_name_the_annotations(annotations: dict[str, str], said: str) -> None:
    with pytest.raises(errors.Invalid, match=re.escape(said)):
        wants.read(service(annotations))


def test_the_annotation_wins_over_load_balancer_ip() -> None:
    assert wants.read(service(load_balancer_ip="198.18.1.1")).ip == "198.18.1.1"
    assert wants.read(service({wants.POOL: "p"}, load_balancer_ip="198.18.1.1")).ip == ""


def test_a_version_contradicts_require_dual_stack() -> None:
    given_ = service({wants.VERSION: "v4"}, ip_family_policy="RequireDualStack", ip_families=("IPv4", "IPv6"))
    with pytest.raises(errors.Invalid, match=wants.VERSION):
        wants.slots(wants.read(given_), given_, "prod", owner(), None, {})


def test_dual_stack_takes_address_pool_and_names_for_their_family() -> None:
    spec: dict[str, Any] = {"ip_family_policy": "RequireDualStack", "ip_families": ("IPv4", "IPv6")}
    given_ = service({wants.ADDRESS: "fd00::1"}, **spec)
    four, six = wants.slots(wants.read(given_), given_, "prod", owner(), None, {})
    assert four.allocators[0]["pool_selector"] == {"type": "auto", "ip_version": "v4"}
    assert six.ip == "fd00::1" and six.names.main == "prod-shop-web-v6"
    given_ = service({wants.POOL: "p"}, **spec)
    four, six = wants.slots(wants.read(given_), given_, "prod", owner(), models.Pool("i", "p", "v6"), {})
    assert six.pool_id == "i" and not four.pool_id
    given_ = service({wants.NAME: "x,y"}, **spec)
    both = {"x": floating("x", ip="fd00::9"), "y": floating("y")}
    four, six = wants.slots(wants.read(given_), given_, "prod", owner(), None, both)
    assert (four.adopt, six.adopt) == ("y", "x")
    with pytest.raises(errors.Invalid, match="different families"):
        wants.slots(wants.read(given_), given_, "prod", owner(), None, both | {"x": floating("x")})


@pytest.mark.parametrize(
    ("ranges", "annotation", "wanted"),
    [
        ((), "", ()),
        (("0.0.0.0/0",), "", ()),
        (("10.0.0.0/8", "::/0"), "", ()),
        (("10.0.0.0/8",), "", ("10.0.0.0/8",)),
        ((), "10.0.0.0/8, 192.168.0.0/16", ("10.0.0.0/8", "192.168.0.0/16")),
        (("10.0.0.0/8",), "0.0.0.0/0", ("10.0.0.0/8",)),
    ],
)
def test_source_ranges_are_those_that_leave_somebody_out(
    ranges: tuple[str, ...], annotation: str, wanted: tuple[str, ...]
) -> None:
    given_ = service({wants.SOURCE_RANGES: annotation} if annotation else {}, load_balancer_source_ranges=ranges)
    assert wants.source_ranges(given_) == wanted


def test_retain_is_meant_in_doubt() -> None:
    assert not wants.must_retain(service()) and not wants.must_retain(service({wants.RETAIN: "false"}))
    assert wants.must_retain(service({wants.RETAIN: "true"})) and wants.must_retain(service({wants.RETAIN: "yes"}))


# Status


def test_an_absent_mode_is_the_default_one() -> None:
    bare = core.LoadBalancerStatus((core.LoadBalancerIngress(ip="10.0.0.1"),))
    default = core.LoadBalancerStatus((core.LoadBalancerIngress(ip="10.0.0.1", ip_mode="VIP"),))
    proxy = core.LoadBalancerStatus((core.LoadBalancerIngress(ip="10.0.0.1", ip_mode="Proxy"),))
    assert same_status(bare, default) and not same_status(bare, proxy)
    assert balancers.unless_same(bare, default) is default and balancers.unless_same(proxy, default) is proxy


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
