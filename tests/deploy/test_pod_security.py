"""Pod Security admission at `restricted`, by a real API server: which shipped pods pass, and why the others do not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests import programs, servers
from tests.deploy.conftest import CHARTS, ROOT, Program, chart_folder, documents, unique

pytestmark = pytest.mark.real

HOST = {"host namespaces", "hostPort"}
"""A manager gives nodes their addresses, and so must not depend on a pod network."""

LOOPBACK = {"host namespaces", "probe or lifecycle host"}
"""The same, and ports that only the machine itself reaches: a probe has to say so."""


@pytest.fixture(scope="module")
def server() -> servers.Server:
    return programs.server("real")


@pytest.fixture
def restricted(kubectl: Program) -> Iterator[str]:
    name = unique("restricted")
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def violations(kubectl: Program, namespace: str, workload: dict[str, Any]) -> set[str]:
    """The checks that a workload's pod fails."""
    template = workload["spec"]["template"]
    spec = {key: value for key, value in template["spec"].items() if key != "serviceAccountName"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace, "labels": template["metadata"]["labels"]},
        "spec": {**spec, "automountServiceAccountToken": False},
    }
    done = kubectl.attempt("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    if done.returncode == 0:
        return set()
    said = re.search(r'violates PodSecurity "restricted:latest": (.*)', done.stderr)
    assert said, done.stderr
    return {check.strip() for check in re.sub(r"\([^()]*(\([^()]*\))?[^()]*\)", "", said[1]).split(",")}


def workloads(text: str) -> dict[str, dict[str, Any]]:
    kinds = ("Deployment", "DaemonSet")
    return {one["metadata"]["name"]: one for one in documents(text) if one["kind"] in kinds}


@pytest.mark.parametrize("overlay", ["no-webhook", "self-signed", "certmanager", "openshift"])
def test_the_controller_of_address_management_passes(kubectl: Program, restricted: str, overlay: str) -> None:
    shipped = workloads(kubectl("kustomize", ROOT / "deploy" / "overlays" / overlay))
    assert violations(kubectl, restricted, shipped["nv-ipam-controller"]) == set()
    # Folders of the node, as their owner, who may write where an installer's user owns them; nothing about privileges.
    assert violations(kubectl, restricted, shipped["nv-ipam-node-ds"]) == {
        "seLinuxOptions",
        "unrestricted capabilities",
        "restricted volume types",
        "runAsNonRoot != true",
        "runAsUser=0",
    }


@pytest.mark.parametrize("chart", CHARTS)
def test_a_manager_passes_but_for_the_network_of_its_machine(
    kubectl: Program, helm: Program, restricted: str, chart: str
) -> None:
    (shipped,) = workloads(helm("template", "x", chart_folder(chart))).values()
    assert violations(kubectl, restricted, shipped) == HOST
    (own,) = workloads(helm("template", "x", chart_folder(chart), "--set", "deployment.hostNetwork=false")).values()
    assert violations(kubectl, restricted, own) == set()


def test_cloudlyckes_manager_and_agent_have_the_network_of_their_machine_and_little_else(
    kubectl: Program, restricted: str
) -> None:
    shipped = workloads((ROOT / "manifests" / "cloudlycke-ccm.yaml").read_text())
    assert violations(kubectl, restricted, shipped["cloudlycke-cloud-controller-manager"]) == LOOPBACK
    # The agent puts addresses on the machine's interfaces and announces them.
    assert violations(kubectl, restricted, shipped["cloudlycke-lb-agent"]) == {
        *LOOPBACK,
        "unrestricted capabilities",
        "runAsNonRoot != true",
        "runAsUser=0",
    }
