"""The stages of an upgrade: never two control plane nodes at once, batches one after the other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from bedplate.api.headapi import ErrandState, Kubeadm
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.clusters.draining import Consent
from bedplate.setup.engine import Stage, order
from bedplate.setup.kubernetes import coredns, nodes
from bedplate.setup.kubernetes.upgrade import stages
from bedplate.setup.kubernetes.upgrade.planning import Member, Version, plan

_OLD, _NEW = Version(34, 4), Version(35, 4)


def _stages(planes: int, workers: int, batch: int) -> list[Stage]:
    members = [Member(f"node{number:03}", number <= planes, _OLD, _OLD if number <= planes else None)
               for number in range(1, planes + workers + 1)]  # fmt: skip
    going = plan("default", _NEW, members, batch)
    made = stages.stages(stages.answers(going, Consent(), 300.0))
    order.check(made)
    return made


def _waves(made: list[Stage]) -> list[list[str]]:
    """The stages that run at the same time, if all take equally long."""
    done: set[str] = set()
    waves = []
    while wave := [stage.name for stage in order.ready(made, done, done)]:
        waves.append(wave)
        done |= set(wave)
    assert len(done) == len(made)
    return waves


def test_item_169_control_plane_nodes_are_alone_and_no_more_workers_than_a_batch_run_together() -> None:
    waves = _waves(_stages(3, 5, 2))
    busy = [[name for name in wave if name.split()[0] in ("Drain", "Upgrade", "Uncordon")] for wave in waves]
    assert [wave for wave in busy if wave] == [
        *([f"{verb} node00{number}"] for number in (1, 2, 3) for verb in ("Drain", "Upgrade", "Uncordon")),
        *([f"{verb} node004", f"{verb} node005"] for verb in ("Drain", "Upgrade", "Uncordon")),
        *([f"{verb} node006", f"{verb} node007"] for verb in ("Drain", "Upgrade", "Uncordon")),
        *([f"{verb} node008"] for verb in ("Drain", "Upgrade", "Uncordon")),
    ]


def test_item_169_a_worker_that_is_late_keeps_the_next_batch_waiting() -> None:
    made = _stages(1, 4, 2)
    early = {stage.name for stage in made[: [stage.name for stage in made].index("Drain node002")]}
    done = {*early, "Drain node002", "Upgrade node002", "Uncordon node002", "Drain node003"}
    assert [stage.name for stage in order.ready(made, done, done)] == ["Upgrade node003"]


def test_item_167_every_node_is_drained_before_and_uncordoned_after_its_upgrade() -> None:
    names = [stage.name for stage in _stages(1, 2, 1)]
    assert names == [
        "Check Cluster", "Check Packages", "Pause Node Changes", "Update Software Images",
        "Drain node001", "Upgrade node001", "Uncordon node001", "Update Cluster DNS",
        "Drain node002", "Upgrade node002", "Uncordon node002",
        "Drain node003", "Upgrade node003", "Uncordon node003",
        "Record Version", "Write Module File", "Resume Node Changes", "Print Summary",
    ]  # fmt: skip


def test_checks_have_no_effects_so_that_a_run_that_fails_there_is_over() -> None:
    assert [bool(stage.effects) for stage in _stages(1, 0, 1)[:3]] == [False, False, True]


def test_an_upgrade_of_workers_alone_waits_for_cluster_dns() -> None:
    members = [Member("node001", True, _NEW, _NEW), Member("node002", False, _OLD)]
    made = stages.stages(stages.answers(plan("default", _NEW, members), Consent(), 1.0))
    order.check(made)
    assert _waves(made)[4:6] == [["Update Cluster DNS"], ["Drain node002"]]


def test_nobody_joins_or_leaves_between_the_checks_and_the_end_also_of_an_upgrade_that_is_undone() -> None:
    made = {stage.name: stage for stage in _stages(1, 2, 1)}
    assert made["Drain node001"].needs is None and made["Pause Node Changes"].undo is not None


@pytest.mark.parametrize("error", [errors.Unavailable("refused"), errors.Denied("forbidden")])
async def test_an_api_server_that_restarts_is_waited_for_also_while_it_has_not_read_its_rules(
    error: errors.BedplateError,
) -> None:
    answers = iter([error, error, ""])

    async def late() -> str:
        answer = next(answers)
        if isinstance(answer, errors.BedplateError):
            raise answer
        return answer

    clock = ManualClock()
    context: Any = SimpleNamespace(clock=clock)
    waiting = asyncio.create_task(stages._until(context, late, 60.0))
    await clock.advance(10.0)
    await waiting
    assert list(answers) == []


def test_an_image_of_cluster_dns_that_somebody_chose_stays() -> None:
    assert coredns.updated("mine:5000/k8s/coredns:v1.12.1", "1.35.4") == "mine:5000/k8s/coredns:v1.13.1"
    assert coredns.updated("mine/coredns:patched", "1.35.4") == "mine/coredns:patched"


def test_what_a_node_does_already_is_not_asked_for_again() -> None:
    work = Kubeadm(action="upgrade-node", cluster="default", version="1.35.4")

    def item(state: str = "accepted", version: str = "1.35.4", action: str = "upgrade-node") -> ErrandState:
        return ErrandState(
            id="1", node="n", kind="kubeadm", state=state, asked="", until="", by="a",  # type: ignore[arg-type]
            action=action, cluster="default", version=version,  # type: ignore[arg-type]
        )  # fmt: skip

    assert nodes.is_under_way(item(), work)
    assert not nodes.is_under_way(item("done"), work)
    assert not nodes.is_under_way(item(version="1.35.3"), work)
    assert not nodes.is_under_way(item(action="join"), work)
