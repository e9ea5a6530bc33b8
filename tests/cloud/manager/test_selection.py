"""Which controllers and which clouds a command line asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedplate.cloud.manager import selection
from bedplate.cloud.manager.selection import CONTROLLERS, LIFECYCLE, NODE, ROUTE, CloudChoice

KNOWN = ("cloudlycke", "nvidia-bmm", "oxide")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["*"], set(CONTROLLERS)),
        ([], set()),
        (["*", "-service"], {NODE, LIFECYCLE, ROUTE}),
        (["-service-lb-controller", "*"], {NODE, LIFECYCLE, ROUTE}),
        (["cloud-node"], {NODE}),
        (["cloud-node-controller", "route"], {NODE, ROUTE}),
        (["*", "cloud-node", "-cloud-node"], set(CONTROLLERS)),
        (["-cloud-node", "-cloud-node-lifecycle", "-route", "-service", "*"], set()),
    ],
)
def test_a_controllers_name_decides_over_the_star(words: list[str], names: set[str]) -> None:
    assert selection.enabled_controllers(words) == (frozenset(names), [])


def test_an_unknown_controller_is_named() -> None:
    _, problems = selection.enabled_controllers(["*", "-nodeipam", "lb"])
    assert [problem.split(" is ")[0] for problem in problems] == ["--controllers: 'nodeipam'", "--controllers: 'lb'"]


def test_one_cloud_takes_a_bare_path_or_a_named_one() -> None:
    wanted = (CloudChoice("oxide", Path("/etc/o=1/oxide.yaml")),)
    assert selection.choose_clouds(["oxide"], ["/etc/o=1/oxide.yaml"], KNOWN) == (wanted, [])
    assert selection.choose_clouds(["oxide"], ["oxide=/etc/o=1/oxide.yaml"], KNOWN) == (wanted, [])
    assert selection.choose_clouds(["oxide"], [], KNOWN) == ((CloudChoice("oxide"),), [])


def test_several_clouds_have_a_file_each() -> None:
    chosen, problems = selection.choose_clouds(["nvidia-bmm", "oxide"], ["oxide=o.yaml", "nvidia-bmm=b.yaml"], KNOWN)
    assert chosen == (CloudChoice("nvidia-bmm", Path("b.yaml")), CloudChoice("oxide", Path("o.yaml")))
    assert not problems


@pytest.mark.parametrize(
    ("providers", "configs", "part"),
    [
        ([], [], "--cloud-provider is required"),
        (["external"], [], "'external' is a value for kubelets"),
        (["aws"], [], "unknown cloud provider 'aws'"),
        (["oxide", "oxide"], [], "is given twice"),
        (["oxide", "nvidia-bmm"], ["file.yaml"], "with several providers write NAME=FILE"),
        (["oxide"], ["a.yaml", "b.yaml"], "more than one file for one provider"),
        (["oxide"], ["oxide=a", "b"], "more than one file for one provider"),
        (["oxide"], ["nvidia-bmm=a.yaml"], "'nvidia-bmm' is not among --cloud-provider"),
        (["oxide"], ["oxide="], "has no file"),
        (["oxide", "nvidia-bmm"], ["oxide=a", "oxide=b"], "'oxide' is given twice"),
    ],
)
def test_a_choice_that_cannot_be_meant_is_refused(providers: list[str], configs: list[str], part: str) -> None:
    _, problems = selection.choose_clouds(providers, configs, KNOWN)
    assert any(part in problem for problem in problems), problems
