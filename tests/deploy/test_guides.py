"""The guides work as written: their commands, in their order, on a real and on an embedded API server.

Nobody runs pods there; what needs a running pod is named in `ELSEWHERE` with the test that shows it. Registries are
replaced by one that runs here. And the page of annotations and labels is held to the code.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import programs, servers
from tests.deploy.conftest import CHARTS, ROOT, Program, chart_folder
from tests.deploy.test_registry import registry, without_containers
from tests.pages import console_lines

from bedplate.api import names
from bedplate.cli.ipam import holders
from bedplate.cloud import labels
from bedplate.cloud.controllers import lifecycle_plan
from bedplate.cloud.providers.nvidia_bmm import config as bmm
from bedplate.cloud.providers.oxide import config, wants
from bedplate.ipam import quarantine

__all__ = ["registry", "without_containers"]

GUIDES = (
    *("deploy-nvidia-bmm.md", "deploy-oxide.md", "deploy-cloudlycke.md", "monitoring.md"),
    *("zones.md", "oxide-load-balancers.md", "node-lifecycle.md"),
)
# What a page tells people to run and this test cannot -> the test that does.
ELSEWHERE = {
    r"kubectl logs .* -f$": "test_lab.py",
    r"podman run ": "test_rootfs.py",
}
# Added to commands that would go on forever, or that speak to a registry without TLS.
ADDED = {
    r"make run ": "ARGS=--version",
    r"make (docker|helm)-push ": "ARGS=--plain-http",
    r"helm (install|upgrade) \S+ oci:": "--plain-http",
}


def adapted(line: str, address: str) -> str:
    line = line.replace("registry.example/", f"{address}/").replace("oci://ghcr.io/oxidecomputer/", f"oci://{address}/")
    extra = [words for pattern, words in ADDED.items() if re.match(pattern, line)]
    return " ".join((line, *extra))


@pytest.mark.parametrize("page", GUIDES)
def test_every_command_of_a_guide_works(
    own_server: servers.Server, registry: str, without_containers: dict[str, str], page: str, tmp_path: Path
) -> None:
    helm = Program(programs.built("helm", programs.HELM), tmp_path)
    for chart in CHARTS:
        helm("package", chart_folder(chart), "--destination", tmp_path)
    for packaged in tmp_path.glob("*.tgz"):
        helm("push", packaged, f"oci://{registry}/helm-charts", "--plain-http")
    folders = (
        Path(sys.executable).parent,
        programs.built("kubectl").parent,
        programs.built("helm", programs.HELM).parent,
    )
    environ = {
        **os.environ,
        **helm.environ,
        **without_containers,
        "PATH": ":".join((*map(str, folders), without_containers["PATH"])),
        "KUBECONFIG": str(own_server.kubeconfig),
    }
    lines = console_lines(ROOT / "docs" / "guides" / page)
    assert lines
    for line in lines:
        if any(re.match(pattern, line) for pattern in ELSEWHERE):
            continue
        command = f"set -o pipefail; {adapted(line, registry)}"
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=600, check=False, cwd=ROOT, env=environ
        )
        assert done.returncode == 0, f"{page}: {line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", ["zones.md", "oxide-load-balancers.md"])
def test_api_servers_take_the_objects_that_a_guide_shows(kubectl: Program, page: str) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "guides" / page).read_text(), re.DOTALL)
    assert len(blocks) == 2
    # A controller makes the account that a pod has; a server that has just started may be without.
    kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=120s")
    for block in blocks:
        kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=block)


def test_the_guide_to_the_lifecycle_names_the_defaults_of_the_flags() -> None:
    page = (ROOT / "docs" / "guides" / "node-lifecycle.md").read_text()
    rules = lifecycle_plan.Rules()
    assert f"`--node-monitor-period` ({rules.period_s:.0f} s)" in page
    assert f"`--node-deletion-confirmations` times ({rules.confirmations})" in page
    assert f"`--node-startup-grace-period` ({rules.grace_s / 60:.0f} minutes)" in page
    assert f"`--max-node-deletions-percent` ({rules.max_percent} %" in page


def test_what_is_shown_elsewhere_is_shown_there() -> None:
    assert "logs" in (ROOT / "tests/deploy/test_lab.py").read_text()
    assert "--kubeconfig" in (ROOT / "tests/deploy/test_rootfs.py").read_text()


def test_the_page_of_annotations_and_labels_names_what_the_code_knows() -> None:
    page = (ROOT / "docs" / "reference" / "annotations-and-labels.md").read_text()
    shown = set(re.findall(r"`([a-zA-Z0-9.-]+/[a-zA-Z0-9-]+)`", page))
    well_known = {
        getattr(names, name)
        for name in dir(names)
        if name.startswith(("LABEL_INSTANCE", "LABEL_REGION", "LABEL_ZONE", "LABEL_EXCLUDE", "ANNOTATION_PROVIDED"))
    }
    taints = {names.TAINT_UNINITIALIZED, names.TAINT_SHUTDOWN, names.TAINT_OUT_OF_SERVICE}
    of_services = {
        *(wants.ADDRESS, wants.POOL, wants.VERSION, wants.NAME, wants.RETAIN, wants.HIDE_INTERNAL, wants.SOURCE_RANGES),
        names.FINALIZER_LOAD_BALANCER,
    }
    of_bmm = {f"nvidia-bmm.nvidia.com/{name}" for name in bmm.LABELS if name != "tenant-labels"}
    known = well_known | taints | of_services | of_bmm | set(config.LABELS.values())
    of_pools = {quarantine.ANNOTATION, holders.NETWORK_STATUS}
    assert shown == known | of_pools | {labels.LABEL_EXCLUDE_FROM_LIFECYCLE}


def test_the_page_of_annotations_and_labels_leaves_out_no_constant_of_oxide() -> None:
    page = (ROOT / "docs" / "reference" / "annotations-and-labels.md").read_text()
    for path in sorted((ROOT / "src/bedplate/cloud").rglob("*.py")):
        for name in re.findall(r'"((?:oxide\.computer|nvidia-bmm\.nvidia\.com)/[a-z-]+)"', path.read_text()):
            assert f"`{name}`" in page, f"{path.name} knows {name}"
