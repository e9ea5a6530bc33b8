"""The guides work as written: their commands, in their order, unchanged, on a real and on an embedded API server.

What a reader sets, `IMG` and the cluster, is in the environment, as the pages say; the registry is one that runs here,
over HTTPS. The commands run in a copy of the checkout, since `make manifest` writes into it. Nobody runs pods there;
what needs a running pod, or goes on forever, is named in `ELSEWHERE` with the test that shows it. And the page of
annotations and labels is held to the code.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import programs, servers
from tests.deploy.conftest import IMAGE, ROOT, VERSION, Program, checkout, load_tool
from tests.deploy.test_registry import tls_registry, without_containers
from tests.pages import console_lines

from bedplate.api import names
from bedplate.cli.ipam import holders
from bedplate.cloud import labels
from bedplate.cloud.controllers import lifecycle_plan
from bedplate.cloud.providers.nvidia_bmm import config as bmm
from bedplate.cloud.providers.oxide import config, wants
from bedplate.ipam import quarantine

__all__ = ["without_containers"]

GUIDES = (
    *("deploy-nvidia-bmm.md", "deploy-oxide.md", "deploy-cloudlycke.md", "monitoring.md"),
    *("zones.md", "oxide-load-balancers.md", "node-lifecycle.md"),
)
# What a page tells people to run and this test cannot -> the test that does.
ELSEWHERE = {
    r"kubectl logs .* -f$": "test_guides_lab.py",
    r"kubectl rollout status ": "test_guides_lab.py",
    r"podman run ": "test_rootfs.py",
    r"make run ": "test_running.py",
    r"bedplate lab load-image ": "test_tutorials.py",
}


@pytest.mark.external
@pytest.mark.parametrize("page", GUIDES)
def test_every_command_of_a_guide_works(
    own_server: servers.Server, without_containers: dict[str, str], page: str, tmp_path: Path
) -> None:
    helm = Program(programs.built("helm", programs.HELM), tmp_path)
    folders = (
        Path(sys.executable).parent,
        programs.built("kubectl").parent,
        programs.built("helm", programs.HELM).parent,
    )
    lines = console_lines(ROOT / "docs" / "guides" / page)
    assert lines
    (tmp_path / "checkout").mkdir()
    folder = checkout(tmp_path / "checkout")
    with tls_registry(tmp_path) as registry:
        environ = {
            **os.environ,
            **helm.environ,
            **without_containers,
            **registry.environ,
            "PATH": ":".join((*map(str, folders), without_containers["PATH"])),
            "KUBECONFIG": str(own_server.kubeconfig),
            "IMG": f"{registry.address}/bedplate:{VERSION}",
            "OXIDE_HOST": "https://oxide.sys.example.com",
            "OXIDE_TOKEN": "a-token",
            "OXIDE_PROJECT": "example",
        }
        for line in lines:
            if any(re.match(pattern, line) for pattern in ELSEWHERE):
                continue
            command = ["bash", "-c", f"set -o pipefail; {line}"]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=900, check=False, cwd=folder, env=environ
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
    assert f"`--mass-deletion-hold` ({rules.hold_s / 60:.0f} minutes)" in page


def test_what_is_shown_elsewhere_is_shown_there() -> None:
    assert "logs" in (ROOT / "tests/deploy/test_guides_lab.py").read_text()
    assert "--kubeconfig" in (ROOT / "tests/deploy/test_rootfs.py").read_text()
    assert all((ROOT / "tests" / "deploy" / place).exists() for place in ELSEWHERE.values())


PAGES = ("deploy-nvidia-bmm.md", "deploy-oxide.md", "deploy-cloudlycke.md", "ipam.md")


@pytest.mark.parametrize("page", PAGES)
def test_a_guide_begins_with_the_image_and_says_that_none_is_public(page: str) -> None:
    text = (ROOT / "docs" / "guides" / page).read_text()
    assert "There is no public image yet" in text
    assert f"export IMG={IMAGE}" in text
    lines = console_lines(ROOT / "docs" / "guides" / page)
    archive = f"build/image/bedplate-{VERSION}.tar"
    assert lines[:4] == [
        "make docker-build docker-push",
        "make manifest",
        "make image",
        f"bedplate lab load-image {archive}",
    ]
    assert load_tool("image").archive_path(IMAGE) == ROOT / archive


@pytest.mark.parametrize("page", PAGES)
def test_no_command_of_a_guide_names_a_registry_of_somebody_else(page: str) -> None:
    for line in console_lines(ROOT / "docs" / "guides" / page):
        assert "ghcr.io" not in line and "IMG=" not in line and "image.name=" not in line, line
        for reference in re.findall(r"oci://(\S+)", line):
            assert reference.startswith("${IMG%/*}/helm-charts/"), line


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
