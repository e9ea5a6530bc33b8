"""The picture of a pool: what is drawn, what is counted, that size does not matter, and colours."""

from __future__ import annotations

import re

import click
from tests.cli.ipam.makers import cidrpool, ippool

from bedplate.cli.ipam import build_views, picture
from bedplate.ipam.addresses import Address, text


def plain(drawn: str) -> list[str]:
    return click.unstyle(drawn).splitlines()


def test_blocks_are_drawn_in_their_order_with_how_full_they_are() -> None:
    blocks = {f"n{at}": f"10.0.0.{1 + 10 * at}-10.0.0.{10 + 10 * at}" for at in (0, 1, 3)}
    pool = ippool(
        "p",
        blocks,
        subnet="10.0.0.0/24",
        perNodeBlockSize=10,
        exclusions=[{"startIP": "10.0.0.41", "endIP": "10.0.0.60"}],
    )
    used = [Address(32, 0x0A000001 + number) for number in (*range(10), 10, 11, 12, 13, 14)]
    view = build_views.view_of(pool, used=used, quarantined={"10.0.0.61-10.0.0.70": ("gone", None)})
    (row,) = [line for line in plain(picture.draw(view, 100)) if line.startswith("10.0.0.1 ")]
    assert row.split()[1] == "█▅·▁××q··················"
    assert "n0" in picture.draw(view, 100)


def test_a_pool_of_2_to_the_48_blocks_is_drawn_where_something_is() -> None:
    prefix = {"a": ("fd00::/64", ""), "b": ("fd00:0:ffff:ffff::/64", "")}
    view = build_views.view_of(cidrpool("p", prefix, cidr="fd00::/16", perNodeNetworkPrefix=64))
    lines = plain(picture.draw(view, 100))
    assert len(lines) < 20
    assert any("2.8e+14" in line and "free" in line for line in lines)
    assert [line.split()[0] for line in lines if re.match(r"fd00.*▁", line)] == ["fd00::", "fd00:0:ffff:ffc0::"]


def test_many_blocks_share_a_mark() -> None:
    blocks = {f"n{at:04}": f"{text(32, 0x0A000001 + at * 4)}-{text(32, 0x0A000004 + at * 4)}" for at in range(5000)}
    view = build_views.view_of(ippool("p", blocks, subnet="10.0.0.0/16", perNodeBlockSize=4))
    lines = plain(picture.draw(view, 100))
    assert len(lines) < 60
    assert "each mark stands for 4 blocks: how many of them are assigned" in lines
    assert any("and 4988 more nodes" in line for line in lines)


def test_a_narrow_terminal_gets_shorter_rows() -> None:
    view = build_views.view_of(ippool("p", subnet="10.0.0.0/24", perNodeBlockSize=4))
    rows = [line for line in plain(picture.draw(view, 50)) if line.startswith("10.0.0.1 ")]
    assert len(rows[0]) <= 50


def test_an_invalid_pool_says_what_is_wrong_instead() -> None:
    view = build_views.view_of(ippool("p", subnet="x", perNodeBlockSize=4), problems=["spec.subnet: no network"])
    assert plain(picture.draw(view, 80))[-1] == "! spec.subnet: no network"


def test_a_bar_is_full_only_when_it_is_full_and_shows_any_use() -> None:
    assert click.unstyle(picture.bar(0, 100, 10)) == "░" * 10
    assert click.unstyle(picture.bar(1, 1000, 10)) == "█" + "░" * 9
    assert click.unstyle(picture.bar(999, 1000, 10)) == "█" * 9 + "░"
    assert click.unstyle(picture.bar(7, 7, 10)) == "█" * 10
    assert click.unstyle(picture.bar(0, 0, 10)) == "░" * 10
    assert "\x1b[31m" in picture.bar(95, 100) and "\x1b[32m" in picture.bar(5, 100)
