"""Answers and a site: what is prefilled, and what does not fit."""

from __future__ import annotations

import asyncio
import ipaddress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.setup.places import answers, site

from bedplate.core import errors
from bedplate.head.folder import creation, datafolder
from bedplate.setup.answers import aliases, fitting, networks
from bedplate.setup.answers import site as sites


def told(values: dict[str, Any], place: sites.Site) -> str:
    return "\n".join(f"{path}: {text}" for path, text in fitting.problems(fitting.complete(values, place), place))


def test_empty_answers_are_filled_with_values_that_fit() -> None:
    filled = fitting.complete(answers(), site())["kubernetes"]
    assert filled["fqdn"] == "basecm10.cm.cluster"
    assert filled["networks"] == {
        "service": "10.150.0.0/16",
        "pod": "172.29.0.0/16",
        "pod_node_mask": 24,
        "internal": "internalnet",
    }
    assert filled["proxy"]["port"] == 10443


def test_answers_that_were_given_stay() -> None:
    given = answers(fqdn="k.example.com", networks__pod="172.20.0.0/16", proxy__port=7000)
    filled = fitting.complete(given, site())["kubernetes"]
    assert (filled["fqdn"], filled["networks"]["pod"], filled["proxy"]["port"]) == (
        "k.example.com",
        "172.20.0.0/16",
        7000,
    )


_networks = st.builds(
    lambda first, bits: ipaddress.IPv4Network((int(ipaddress.IPv4Address(first)), bits), strict=False),
    st.one_of(
        st.builds(lambda a, b: f"10.{a}.{b}.0", st.integers(0, 255), st.integers(0, 255)),
        st.builds(lambda a, b: f"172.{a}.{b}.0", st.integers(16, 31), st.integers(0, 255)),
    ),
    st.integers(9, 30),
)


@given(st.lists(_networks, max_size=40))
def test_prefilled_ranges_overlap_nothing(taken: list[ipaddress.IPv4Network]) -> None:
    try:
        services = networks.free_services(taken)
        pods = networks.free_pods([*taken, services])
    except errors.Invalid:
        return
    for one in (services, pods):
        assert not any(one.overlaps(other) for other in taken)
    assert not services.overlaps(pods)
    assert ipaddress.ip_address(networks.dns_address(services)) in services


def test_where_nothing_is_free_the_key_is_named() -> None:
    with pytest.raises(errors.Invalid) as refused:
        networks.free_services([ipaddress.IPv4Network("10.0.0.0/8")])
    assert "kubernetes.networks.service" in refused.value.hint


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"networks__pod": "10.141.4.0/22"}, "networks.pod: 10.141.4.0/22 overlaps the network internalnet"),
        (
            {"networks__pod": "10.150.0.0/16", "networks__service": "10.150.0.0/16"},
            "networks.pod: 10.150.0.0/16 overlaps the service network 10.150.0.0/16",
        ),
        ({"networks__internal": "nonet"}, "networks.internal: the head has no network 'nonet'"),
        ({"networks__pod": "172.29.0.0/22", "networks__pod_node_mask": 22}, "must be greater than the 22 bits"),
        ({"networks__pod": "172.29.0.0/22", "networks__pod_node_mask": 23}, "fewer parts with 23 bits than 3 nodes"),
        ({"nodes__masters__nodes": ["node999"]}, "node 'node999' not found"),
        ({"nodes__masters__nodes": ["basecm10"]}, "basecm10 is a head node; name it below head_nodes"),
        ({"nodes__workers__categories": ["gpu"]}, "there is no category 'gpu'"),
        ({"nodes__etcd__nodes": ["node001", "node002"]}, "must be odd (1, 3, 5), not 2"),
        ({"version": "1.20"}, "version: 1.20 is not supported; choose one of"),
        ({"cni": "calico"}, "cni_manifest: calico is installed from its manifest"),
    ],
)
def test_what_does_not_fit_is_told(changes: dict[str, Any], expected: str) -> None:
    assert expected in told(answers(**changes), site())


def test_answers_that_fit_have_no_problem() -> None:
    assert told(answers(), site()) == ""
    three = answers(nodes__masters__nodes=["node00[1-3]"], nodes__workers__nodes=[])
    assert told(three, site()) == ""


def test_a_category_has_workers_that_are_not_control_plane_nodes() -> None:
    values = answers(nodes__workers__nodes=[], nodes__workers__categories=["default"])
    meant = fitting.members(values, site())
    assert (meant.masters, meant.etcd) == (("node001",), ("node001",))
    assert meant.workers == ("node002", "node003", "node004", "node005", "node006")
    both = fitting.members(answers(nodes__workers__nodes=["node001", "node002"]), site())
    assert both.workers == ("node001", "node002")
    head = {"nodes__masters__head_nodes": ["basecm10"], "nodes__masters__nodes": []}
    named = fitting.members(answers(**head, nodes__workers__head_nodes=["basecm10"]), site())
    assert named.workers == ("basecm10", "node002", "node003")


def test_aliases_lead_to_another_site() -> None:
    here = site(head="basecm10", passive="basecm11")
    values = fitting.complete(
        answers(nodes__etcd__head_nodes=["basecm10"], nodes__workers__categories=["default"]), here
    )
    saved = aliases.aliased(values, here)
    assert saved["kubernetes"]["nodes"]["etcd"]["head_nodes"] == ["master"]
    assert saved["kubernetes"]["nodes"]["workers"]["categories"] == ["defaultcategory"]
    there = site(head="otherhead", category="compute")
    loaded = fitting.complete(saved, there)["kubernetes"]
    assert loaded["nodes"]["etcd"]["head_nodes"] == ["otherhead"]
    assert loaded["nodes"]["workers"]["categories"] == ["compute"]
    assert loaded["fqdn"] == "otherhead.cm.cluster"


def test_the_site_of_a_new_head(tmp_path: Path) -> None:
    async def read() -> sites.Site:
        await creation.make(tmp_path / "data", name="basecm10", nodes=3)
        async with datafolder.open_head(tmp_path / "data") as opened:
            return sites.of_tree(opened.head.tree, "basecm10")

    place = asyncio.run(read())
    assert place.head_nodes == ["basecm10"]
    assert sorted(place.nodes) == ["basecm10", "node001", "node002", "node003"]
    assert place.clusters == {}
    # The networks of the first cluster are there before it; only another cluster must not use them.
    assert fitting.complete(answers(), place)["kubernetes"]["networks"]["pod"] == "172.29.0.0/16"
    second = fitting.complete(answers(name="second"), place)["kubernetes"]["networks"]
    assert (second["service"], second["pod"]) == ("10.151.0.0/16", "172.30.0.0/16")
