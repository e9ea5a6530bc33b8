"""Which addresses a node gets."""

from __future__ import annotations

import pytest
from tests.cloud.scripted import node

from bedplate.api.names import ANNOTATION_PROVIDED_NODE_IP
from bedplate.cloud import node_addresses
from bedplate.cloud.interface import Address

OFFERED = (
    Address("InternalIP", "10.0.0.4"),
    Address("InternalIP", "10.0.0.5"),
    Address("ExternalIP", "1.2.3.4"),
    Address("Hostname", "n"),
)
DUAL = (Address("InternalIP", "fd00::5"), *OFFERED)


def test_a_match_comes_first_and_claims_its_type() -> None:
    assert node_addresses.provided_first("10.0.0.5", OFFERED) == (OFFERED[1], OFFERED[2], OFFERED[3])


def test_a_pair_keeps_both_families_in_its_own_order() -> None:
    found = node_addresses.provided_first("10.0.0.5,fd00::5", DUAL)
    assert found == (OFFERED[1], DUAL[0], OFFERED[2], OFFERED[3])


def test_addresses_are_compared_as_numbers() -> None:
    assert node_addresses.provided_first("fd00:0::0005", DUAL)[0] == DUAL[0]
    assert node_addresses.provided_first("::ffff:10.0.0.5", OFFERED)[0] == OFFERED[1]


def test_an_address_offered_under_two_types_claims_both() -> None:
    offered = (Address("ExternalIP", "10.0.0.5"), *OFFERED)
    assert node_addresses.provided_first("10.0.0.5", offered) == (offered[0], OFFERED[1], OFFERED[3])


@pytest.mark.parametrize(
    "text",
    [
        "", " 10.0.0.5", "10.0.0.5 ", "10.0.0.5, fd00::5", "10.0.0.5,10.0.0.4", "fd00::5,fd00::6",
        "10.0.0.5,fd00::5,10.0.0.4", "10.0.0.5,", "n", "0.0.0.0,fd00::5", "10.0.0.5,::", "fe80::1%eth0", "10.0.0.05",
    ],
)  # fmt: skip
def test_malformed_node_ips_are_refused(text: str) -> None:
    with pytest.raises(node_addresses.InvalidNodeIP):
        node_addresses.provided_first(text, DUAL)


def test_a_node_ip_that_is_not_offered_is_named_with_the_offer() -> None:
    with pytest.raises(node_addresses.InvalidNodeIP) as caught:
        node_addresses.provided_first("10.9.9.9", OFFERED)
    assert "10.9.9.9" in str(caught.value)
    assert "InternalIP 10.0.0.4" in str(caught.value)


def test_the_check_before_initialisation_needs_an_annotation_to_object() -> None:
    node_addresses.check_node_ip(node(), ())
    with pytest.raises(node_addresses.InvalidNodeIP):
        node_addresses.check_node_ip(node(annotations={ANNOTATION_PROVIDED_NODE_IP: "10.0.0.5"}), ())


def test_equal_lists_are_not_written_and_a_reorder_is() -> None:
    same = tuple((one.type, one.address) for one in DUAL)
    assert node_addresses.decide(node(addresses=same), DUAL).addresses is None
    assert node_addresses.decide(node(addresses=same[::-1]), DUAL).addresses == DUAL


def test_the_kubelets_hostname_stays_when_the_cloud_gives_none() -> None:
    present = (("Hostname", "n1"), ("InternalIP", "10.0.0.1"))
    found = node_addresses.decide(node(addresses=present), OFFERED[:3]).addresses
    assert found == (*OFFERED[:3], Address("Hostname", "n1"))


def test_no_offer_leaves_everything() -> None:
    found = node_addresses.decide(node(addresses=(("InternalIP", "10.0.0.1"),)), ())
    assert (found.addresses, found.is_refusal) == (None, True)


def test_the_last_internal_address_is_never_taken_away() -> None:
    has_one = node(addresses=(("InternalIP", "10.0.0.1"),))
    found = node_addresses.decide(has_one, (Address("ExternalIP", "1.2.3.4"),))
    assert (found.addresses, found.is_refusal) == (None, True)
    assert node_addresses.decide(node(), (Address("ExternalIP", "1.2.3.4"),)).addresses is not None


def test_a_bad_annotation_keeps_the_old_addresses() -> None:
    bad = node(addresses=(("InternalIP", "10.0.0.4"),), annotations={ANNOTATION_PROVIDED_NODE_IP: "10.7.7.7"})
    found = node_addresses.decide(bad, OFFERED)
    assert (found.addresses, found.is_refusal) == (None, True)


def test_the_same_address_twice_is_published_once() -> None:
    assert node_addresses.decide(node(), (OFFERED[0], OFFERED[0])).addresses == (OFFERED[0],)
