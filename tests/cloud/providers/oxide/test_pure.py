"""The decisions without a cloud: names, records, provider IDs, annotations, placement, plans, status."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cloud.providers.oxide.values import UUID, floating, owner, service

from bedplate.api import core
from bedplate.cloud.interface import same_status
from bedplate.cloud.providers.oxide import balancers, models, names, ownership, providerid, wants
from bedplate.core import errors

OXIDE_NAME = re.compile(r"[a-z]([a-zA-Z0-9-]*[a-zA-Z0-9]+)?")
label = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


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
