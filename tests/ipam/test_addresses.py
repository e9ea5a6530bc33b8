"""Texts of addresses and networks, and the arithmetic of blocks."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.ipam import addresses
from bedplate.ipam.addresses import Address, Network, parse_address, parse_network


def net(written: str) -> Network:
    parsed = parse_network(written)
    assert parsed is not None
    return parsed[1]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("FD52:2EB5:0044::A", "fd52:2eb5:44::a"),
        ("1:0:0:2:0:0:0:3", "1:0:0:2::3"),
        ("1:0:2:3:4:5:6:7", "1:0:2:3:4:5:6:7"),
        ("::10.0.0.1", "::a00:1"),
        ("::", "::"),
        ("::1", "::1"),
    ],
)
def test_an_address_is_written_as_go_writes_it(written: str, shown: str) -> None:
    assert str(parse_address(written)) == shown


@pytest.mark.parametrize(
    "written",
    ["", "x", "10.0.0", "10.0.0.256", "10.0.0.01", "10.0.0.1 ", " 10.0.0.1", "10.0.0.1\n", "10.0.0.1\0", "fe80::1%eth0",
     "1::2::3", "00001::", "1:2:3:4:5:6:7:8::", ":1::", "::ffff:010.0.0.1", "٣.1.1.1", "\udc80"],
)  # fmt: skip
def test_what_go_does_not_read_is_no_address(written: str) -> None:
    assert parse_address(written) is None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_every_address_is_read_back_from_its_text(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if address.version == 6 and address.ipv4_mapped is not None:
        return
    made = Address(address.max_prefixlen, int(address))
    assert str(made) == str(address)
    assert parse_address(str(made)) == made


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("10.0.0.0/024", "10.0.0.0/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("::/00", "::/0"),
        ("fd52::1/128", "fd52::1/128"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:10.0.0.0/96", "0.0.0.0/0"),
        ("::ffff:10.0.0.0/64", "::/64"),
        ("::ffff:10.0.0.0/95", "::fffe:0:0/95"),
    ],
)
def test_a_network_loses_its_host_bits(written: str, shown: str) -> None:
    assert str(net(written)) == shown


@pytest.mark.parametrize(
    "written",
    ["", "10.0.0.0", "10.0.0.0/", "/24", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/ 8",
     "10.0.0.0/8/8", "10.0.0.0/８", "fe80::%eth0/64", "10.0.0.0/" + "9" * 5000, "::ffff:10.0.0.0/129"],
)  # fmt: skip
def test_what_go_does_not_read_is_no_network(written: str) -> None:
    assert parse_network(written) is None


def test_the_address_before_the_slash_is_kept_as_it_was_written() -> None:
    assert parse_network("10.1.2.3/8") == (Address(32, 0x0A010203), Network(32, 0x0A000000, 8))


@pytest.mark.parametrize(
    ("written", "usable", "first", "last", "broadcast"),
    [
        ("10.0.0.0/24", 254, "10.0.0.1", "10.0.0.254", True),
        ("10.0.0.0/30", 2, "10.0.0.1", "10.0.0.2", True),
        ("10.0.0.0/31", 2, "10.0.0.0", "10.0.0.1", False),
        ("10.0.0.7/32", 1, "10.0.0.7", "10.0.0.7", False),
        ("fd00::/120", 255, "fd00::1", "fd00::ff", False),
        ("fd00::/127", 2, "fd00::", "fd00::1", False),
        ("fd00::5/128", 1, "fd00::5", "fd00::5", False),
    ],
)
def test_the_addresses_hosts_may_use(written: str, usable: int, first: str, last: str, broadcast: bool) -> None:
    network = net(written)
    assert addresses.usable(network) == usable
    assert addresses.text(network.bits, addresses.first_usable(network)) == first
    assert addresses.text(network.bits, addresses.last_usable(network)) == last
    assert addresses.has_broadcast(network) is broadcast


@pytest.mark.parametrize(
    ("written", "good", "bad"),
    [
        ("10.0.0.0/24", [1, 254], [0, 255, 256, -1]),
        ("fd00::/120", [1, 255], [0, 256]),
        ("10.0.0.0/31", [0, 1], [2, -1]),
        ("10.0.0.0/32", [0], [1]),
        ("fd00::/127", [0, 1], [2]),
        ("fd00::/128", [0], [1]),
    ],
)
def test_a_gateway_index_names_a_usable_address_or_nothing(written: str, good: list[int], bad: list[int]) -> None:
    network = net(written)
    for index in good:
        assert addresses.gateway_at(network, index) == Address(network.bits, network.base + index)
    assert [addresses.gateway_at(network, index) for index in bad] == [None] * len(bad)


def test_networks_of_two_families_share_nothing() -> None:
    four, six = net("0.0.0.0/0"), net("::/0")
    assert not four.holds(Address(128, 5)) and not six.holds(Address(32, 5))
    assert not four.overlaps(six) and not six.holds_network(four)
    assert net("10.0.0.0/8").overlaps(net("10.1.0.0/16")) and net("10.1.0.0/16").overlaps(net("10.0.0.0/8"))
    assert not net("10.0.0.0/16").overlaps(net("10.1.0.0/16"))
