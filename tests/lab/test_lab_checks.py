"""The health checks of a real cluster: what each says while something is stopped that it watches, and afterwards.

The tests follow one another on one managed lab with a control plane node and a worker, and the last one removes the
cluster. Nothing is played: kubelet and scheduler are stopped, a pod fails, a node is switched off.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.lab.test_lab_setup import Lab, answers_file, bare
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.soak, pytest.mark.xdist_group("lab")]

_NODES = ("node001", "node002")
_CHECKS = ("KubernetesChildNode", "KubernetesComponentsStatus", "KubernetesNodesStatus", "KubernetesPodsStatus")
_CHILDREN, _COMPONENTS, _READY, _PODS = _CHECKS


@pytest.fixture(scope="module")
def lab(new_lab: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = new_lab("h")
    lab = bare(made, _NODES)
    nodes = {"masters": {"nodes": ["node001"]}, "workers": {"nodes": ["node002"]}}
    lab.setup("-c", str(answers_file(tmp_path_factory.mktemp("checks"), nodes=nodes)), "--on-error-action", "abort")
    for name in _CHECKS:
        lab.site.cmsh("healthcheck", f"use {name}", "set interval 5s", "commit")
    yield lab
    made.run("down")


def _result(lab: Lab, check: str) -> tuple[str, str]:
    """The last result of a check of the cluster, and what it says."""
    header, *rows = lab.site.cmsh("kubernetes health default -d '|'").splitlines()
    for row in rows:
        told = dict(zip(header.split("|"), row.split("|"), strict=True))
        if told["Check"] == check:
            return told["Result"], told["Info"]
    return "", ""


def _fails(lab: Lab, check: str, words: str) -> None:
    def is_told() -> bool:
        result, info = _result(lab, check)
        return result == "FAIL" and words in info

    wait_until(is_told, f"{check} says {words}", step_s=1)


def _passes(lab: Lab, check: str) -> None:
    wait_until(lambda: _result(lab, check)[0] == "PASS", f"{check} passes", step_s=1)


@contextlib.contextmanager
def _frozen_kubelet(lab: Lab, node: str) -> Iterator[None]:
    process = lab.kubelet(node)
    lab.site.on(node, "kill", "-STOP", process)
    try:
        yield
    finally:
        lab.site.on(node, "kill", "-CONT", process)


def test_item_107_the_kubelets_have_the_address_of_cluster_dns(lab: Lab) -> None:
    for node in _NODES:
        config = lab.site.on(node, "cat", "/var/lib/kubelet/config.yaml")
        assert re.search(r"clusterDNS:\n- 10\.150\.255\.254\n", config), config


def test_item_157_a_new_cluster_passes_its_four_checks(lab: Lab) -> None:
    for check in _CHECKS:
        _passes(lab, check)


def test_item_159_a_failed_pod_is_named_and_one_that_succeeded_is_not(lab: Lab) -> None:
    container = {"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent"}
    for name, command in (("bad", "false"), ("good", "true")):
        spec = {"restartPolicy": "Never", "containers": [{**container, "command": [command]}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        lab.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    wait_until(lambda: lab.get("pod", "good")["status"]["phase"] == "Succeeded", "the good pod is over", step_s=0.5)
    _fails(lab, _PODS, "default/bad (Failed")
    assert "good" not in _result(lab, _PODS)[1]
    lab.kubectl("delete", "pod", "bad")
    _passes(lab, _PODS)


def test_items_158_161_a_kubelet_that_stopped_fails_the_checks_of_nodes_and_services_until_it_goes_on(
    lab: Lab,
) -> None:
    with _frozen_kubelet(lab, "node002"):
        _fails(lab, _CHILDREN, "node002")
        _fails(lab, _READY, "node002")
        assert "node001" not in _result(lab, _READY)[1]
    _passes(lab, _CHILDREN)
    _passes(lab, _READY)


def test_item_160_a_scheduler_that_stopped_fails_the_check_of_components_until_it_is_back(lab: Lab) -> None:
    place, away = "/etc/kubernetes/manifests/kube-scheduler.yaml", "/etc/kubernetes/kube-scheduler.away"
    lab.site.on("node001", "mv", place, away)
    try:
        _fails(lab, _COMPONENTS, "kube-scheduler")
    finally:
        lab.site.on("node001", "mv", away, place)
    _passes(lab, _COMPONENTS)


def test_item_161_a_node_that_is_switched_off_is_not_expected_to_run_services(lab: Lab) -> None:
    lab.site.lab.ok("stop-node", "node002")
    wait_until(lambda: lab.site.status("node002")["Status"] == "DOWN", "the head knows that node002 is off", step_s=1)
    _fails(lab, _READY, "node002")
    _passes(lab, _CHILDREN)
    lab.site.lab.ok("start-node", "node002")
    _passes(lab, _READY)


def test_item_162_the_results_of_the_last_hour_have_their_times(lab: Lab) -> None:
    told = lab.site.cmsh("kubernetes use default", f"dumpmonitoringdata -1h now {_READY}")
    moment = r"(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}"
    assert re.search(rf"{moment} PASS", told) and re.search(rf"{moment} FAIL +not ready: node002", told), told


def test_item_157_the_checks_go_with_the_last_cluster(lab: Lab) -> None:
    said = lab.setup("--remove", "--yes-i-really-mean-it", "--on-error-action", "abort")
    assert "status: completed" in said
    assert "Kubernetes" not in lab.site.cmsh("healthcheck list")
    lab.assert_as_before()
