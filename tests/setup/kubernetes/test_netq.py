"""What NetQ needs of a site: each limit and rule has its message, and the check can be left out."""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.setup import places
from tests.setup.engine import fakes
from tests.setup.kubernetes import sites

from bedplate.api import headapi
from bedplate.setup.engine import Context, Stage
from bedplate.setup.kubernetes import addons, netq
from bedplate.setup.kubernetes.netq import Machine
from bedplate.setup.tool import operations

GIB = 2**30
NETQ = {"netq": {"version": "4.13", "chart": "/netq.tgz", "values_file": "", "options": {}}}


def machine(name: str = "node001", **changes: Any) -> Machine:
    return Machine(**{"name": name, "os": "ubuntu 20.04", "memory": 64 * GIB, "disk": 250 * GIB, **changes})


def told(*machines: Machine, port: int = 8084, has_kyverno: bool = False) -> list[str]:
    return netq.problems(machines, ["basecm10"], port, has_kyverno=has_kyverno)


def test_item_198_one_or_three_nodes_that_are_large_enough_are_taken() -> None:
    assert told(machine()) == []
    assert told(machine("node001"), machine("node002"), machine("node003")) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"os": "ubuntu 22.04"}, "node001 has ubuntu 22.04; NetQ needs Ubuntu 20.04"),
        ({"os": None}, "node001 has an unknown distribution; NetQ needs Ubuntu 20.04"),
        ({"memory": 64 * GIB - 1}, "node001 has 64.0 GiB of memory; NetQ needs 64 GiB"),
        ({"memory": 16 * GIB}, "node001 has 16.0 GiB of memory; NetQ needs 64 GiB"),
        ({"memory": None}, "node001 has an unknown size of memory; NetQ needs 64 GiB"),
        ({"disk": 250 * GIB - 1}, "node001 has 250.0 GiB of disk; NetQ needs 250 GiB"),
        ({"disk": None}, "node001 has an unknown size of disk; NetQ needs 250 GiB"),
        ({"name": "basecm10"}, "basecm10 is a head node; NetQ needs regular nodes"),
    ],
)
def test_item_198_each_limit_of_a_node_has_its_message(changes: dict[str, Any], text: str) -> None:
    assert told(machine(**changes)) == [text]


def test_item_198_each_rule_of_the_site_has_its_message() -> None:
    two = told(machine("node001"), machine("node002"))
    assert two == ["NetQ runs on 1 or 3 nodes, not on 2: name them with kubernetes.netq.nodes"]
    assert "not on 0" in told()[0]
    (port,) = told(machine(), port=8081)
    assert "the head serves port 8081" in port and "bedplate head serve --port 8084" in port
    (kyverno,) = told(machine(), has_kyverno=True)
    assert "kubernetes.kyverno.install" in kyverno


def test_a_node_is_what_its_agent_says_of_it() -> None:
    system = headapi.System(id="ubuntu", version="20.04", memory=5, disk=6)
    assert netq.machine("a", system) == Machine("a", "ubuntu 20.04", 5, 6)
    assert netq.machine("a", headapi.System()) == netq.machine("a", None) == Machine("a")


def test_the_nodes_are_those_that_are_named_or_all_regular_ones_and_get_a_label() -> None:
    def chosen(**changes: Any) -> tuple[str, ...]:
        return netq.chosen(places.answers(**changes), sites.settings(**changes))

    assert chosen() == ()
    assert chosen(operators=NETQ) == ("node001", "node002", "node003")
    named = {"operators": NETQ, "netq__nodes": ["node00[2-3]"]}
    assert chosen(**named) == ("node002", "node003")
    assert addons.of_answers(places.answers(**named), sites.settings(**named)).netq == ("node002", "node003")
    sets = addons.defaults.label_sets(["node001"], netq=["node002"])
    assert sets["netq"]["values"] == {"labels": ["bedplate.dev/netq="], "nodes": ["node002"]}
    assert "netq" not in addons.defaults.label_sets(["node001"])


def test_item_198_the_check_is_there_with_netq_alone_and_can_be_skipped() -> None:
    def names(**changes: Any) -> list[str]:
        return [stage.name for stage in operations.deployment(places.answers(**changes), places.site())]

    check = "Check NetQ Prerequisites"
    assert check not in names()
    with_netq = names(operators=NETQ)
    assert check in with_netq and with_netq.index(check) < with_netq.index("Create Networks")
    assert [name for name in with_netq if name != check] == names(operators=NETQ, skip__netq_checks=True)


class Head:
    """A daemon whose agents tell the same of each node."""

    def __init__(self, system: headapi.System, port: int = 8084) -> None:
        self.url = f"https://head:{port}"
        self._system = system

    async def nodes(self, names: Sequence[str]) -> list[headapi.NodeState]:
        return [headapi.NodeState(node=name, state="UP", health="PASS", system=self._system) for name in names]


async def stopped(tmp_path: Path, head: Head, **changes: Any) -> tuple[str, str]:
    """The status of a run with the check alone, and what it printed."""
    settings = sites.settings(operators=NETQ, **changes)

    async def look(context: Context) -> None:
        backend = types.SimpleNamespace(fleet=head)
        await netq.check(
            Context(
                context.answers,
                context.notes,
                context.say,
                context.log,
                context.clock,
                types.SimpleNamespace(backend=backend),
                context.mask,
            ),
            settings,
        )

    bench = fakes.Bench(tmp_path)
    answers = places.answers(operators=NETQ, **changes)
    status = await bench.run([Stage("Check", "kubernetes", look)], on_error="abort", answers=answers).execute()
    return status, bench.printed


GOOD = headapi.System(id="ubuntu", version="20.04", memory=64 * GIB, disk=250 * GIB)


async def test_item_198_nodes_are_asked_before_anything_is_changed(tmp_path: Path) -> None:
    status, printed = await stopped(tmp_path / "good", Head(GOOD))
    assert status == "completed" and "NetQ: node001, node002, node003" in printed
    status, printed = await stopped(
        tmp_path / "bad", Head(msgspec.structs.replace(GOOD, disk=0), port=8081), kyverno__install=True
    )
    assert status == "aborted" and "Nothing was changed." in printed
    for text in ("node001 has an unknown size of disk", "the head serves port 8081", "beside Kyverno"):
        assert text in printed
    assert "--skip-netq-prerequisites-checks" in printed
