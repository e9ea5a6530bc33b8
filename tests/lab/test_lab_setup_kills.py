"""kill -9 of cm-kubernetes-setup at every stage boundary, on real nodes: nothing but the start and the end is left.

The tests follow one another; one for each stage of a deployment. The run is killed as soon as it says that the stage
begins, and then taken back or resumed in turn. A cluster that was completed so is compared with one of a run that
nobody interrupted, and removed by runs that are killed at two stages of the removal each, until every one of those had
its turn. The last tests add a node to a cluster and take it out, killed in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.lab.test_lab_setup import EXAMPLE, Lab, answers_file, bare
from tests.setup.kubernetes import sites
from tests.waiting import wait_until

from bedplate.setup.answers import document, fitting, site
from bedplate.setup.kubernetes import change
from bedplate.setup.tool import operations

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.soak, pytest.mark.xdist_group("lab")]

_NODES = ("node001", "node002", "node003")
_PLACES: dict[str, Any] = {"masters": {"nodes": ["node001"]}, "workers": {"nodes": ["node002"]}}
_AT_ONCE = 2
"""Boundaries of a removal that one removal is killed at."""
# What is different in every deployment: keys, certificates, tokens, seeds.
_OWN = re.compile(
    r"-----BEGIN.*?-----END [A-Z ]*-----|\b[a-z0-9]{6}\.[a-z0-9]{16}\b|\b[0-9a-f]{16,}\b|[A-Za-z0-9+/=]{40,}", re.DOTALL
)


def _deployment() -> list[str]:
    there = site.of_tree(sites.tree(), "basecm10")
    answers = fitting.complete(document.load(EXAMPLE.read_bytes(), str(EXAMPLE)).values, there)
    return [stage.name for stage in operations.deployment(answers, there)]


DEPLOYMENT = _deployment()
REMOVAL = [stage.name for stage in operations.removal("default")]


class Ground(NamedTuple):
    """The lab, the answers, and what the head has of a cluster that was deployed in one go."""

    lab: Lab
    answers: Path
    finished: str

    def is_as_finished(self) -> None:
        """The cluster is the one that an uninterrupted run makes."""
        assert _shape(self.lab) == self.finished
        shown = [line.split()[:3] for line in self.lab.kubectl("get", "nodes").splitlines()[1:]]
        assert shown == [["node001", "Ready", "control-plane,master"], ["node002", "Ready", "worker"]]
        assert Path(self.lab.setup("--kubeconfig-of", "default").strip()).is_file()
        assert len(list((self.lab.site.data / "modulefiles" / "kubernetes" / "default").iterdir())) == 1
        assert "there is no interrupted run" in self.lab.setup("--resume", code=1)


def _shape(lab: Lab) -> str:
    """The tree of the head without what is never the same twice."""
    return _OWN.sub("...", yaml.safe_dump(yaml.safe_load(lab.tree_of_head()), width=10_000))


@pytest.fixture(scope="module")
def ground(new_lab: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = new_lab("x")
    lab = bare(made, _NODES)
    answers = answers_file(tmp_path_factory.mktemp("kills"), nodes=_PLACES)
    plan = re.findall(r"(?m)^ *\d+\. kubernetes: (.*)$", lab.setup("-c", str(answers), "--plan"))
    assert plan == DEPLOYMENT
    lab.setup("-c", str(answers), "--on-error-action", "abort")
    finished = _shape(lab)
    _remove(lab, [])
    yield Ground(lab, answers, finished)
    made.run("down")


def _remove(lab: Lab, boundaries: list[str]) -> None:
    """Remove the cluster by runs that are killed at these stages."""
    words: tuple[str, ...] = ("--remove", "--yes-i-really-mean-it")
    is_over = False
    for stage in boundaries:
        is_over = not lab.kill_at(stage, *words)
        assert not is_over or stage == REMOVAL[-1]
        words = ("--resume",)
    if not is_over:
        assert "status: completed" in lab.setup(*words, "--on-error-action", "abort")
    lab.assert_as_before()


@pytest.mark.parametrize(("number", "stage"), list(enumerate(DEPLOYMENT)), ids=DEPLOYMENT)
def test_whatever_is_killed_is_taken_back_or_resumed_to_exactly_the_start_or_the_end(
    ground: Ground, number: int, stage: str
) -> None:
    lab = ground.lab
    was_killed = lab.kill_at(stage, "-c", str(ground.answers))
    # Nothing but the last stage, which only prints, may be quicker than a kill.
    assert was_killed or stage == DEPLOYMENT[-1]
    if number % 2:
        assert "status: undone" in lab.setup("--undo", code=1)
        lab.assert_as_before()
        return
    if was_killed:
        assert "status: completed" in lab.setup("--resume", "--on-error-action", "abort")
    ground.is_as_finished()
    first = number // 2 * _AT_ONCE % len(REMOVAL)
    _remove(lab, REMOVAL[first : first + _AT_ONCE])


def test_every_stage_of_a_removal_had_its_turn() -> None:
    assert len(range(0, len(DEPLOYMENT), 2)) * _AT_ONCE >= len(REMOVAL)


_ADDED = "node003"
_ANSWERS = {"cluster": "default", "nodes": [_ADDED]}
# Without the last ones, which only print.
COMING = [stage.name for stage in change.adding(_ANSWERS)][:-1]
GOING = [stage.name for stage in change.removing(_ANSWERS)][:-1]


@pytest.fixture(scope="module")
def cluster(ground: Ground) -> Iterator[Lab]:
    """A cluster of two nodes."""
    ground.lab.setup("-c", str(ground.answers), "--on-error-action", "abort")
    yield ground.lab
    _remove(ground.lab, [])


def _is_in(lab: Lab) -> bool:
    """Whether the node is a part of the cluster that takes pods."""
    found = [item for item in lab.get("nodes")["items"] if item["metadata"]["name"] == _ADDED]
    return bool(found) and not found[0]["spec"].get("unschedulable")


@pytest.mark.parametrize("stage", COMING)
def test_items_109_110_an_addition_that_is_killed_is_resumed_and_one_more_is_taken_back(
    cluster: Lab, stage: str
) -> None:
    assert cluster.kill_at(stage, "--add-nodes", _ADDED)
    assert "status: undone" in cluster.setup("--undo", code=1)
    assert not cluster.has_node(_ADDED)
    cluster.assert_clean(_ADDED)
    assert cluster.kill_at(stage, "--add-nodes", _ADDED)
    assert "status: completed" in cluster.setup("--resume", "--on-error-action", "abort")
    assert _is_in(cluster)
    cluster.setup("--remove-nodes", _ADDED, "--on-error-action", "abort")
    cluster.assert_clean(_ADDED)


@pytest.mark.parametrize("stage", GOING)
def test_items_109_110_a_node_that_was_leaving_stays_when_that_is_taken_back_and_leaves_when_resumed(
    cluster: Lab, stage: str
) -> None:
    cluster.setup("--add-nodes", _ADDED, "--on-error-action", "abort")
    assert cluster.kill_at(stage, "--remove-nodes", _ADDED)
    assert "status: undone" in cluster.setup("--undo", code=1)
    wait_until(lambda: _is_in(cluster), "pods may come to the node again", step_s=0.5)
    assert cluster.kill_at(stage, "--remove-nodes", _ADDED)
    assert "status: completed" in cluster.setup("--resume", "--on-error-action", "abort")
    assert not cluster.has_node(_ADDED)
    cluster.assert_clean(_ADDED)
