"""The pages on address management are true: commands run, objects are taken, keys, codes and flags exist.

Commands run on a real and on an embedded API server of their own. Nobody runs pods there: what needs a running pod is
named in `ELSEWHERE` with the test that shows it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests import programs, servers
from tests.deploy.conftest import ROOT
from tests.pages import console_lines
from tests.waiting import wait_until

from bedplate.apps.bedplate import root
from bedplate.ipam.controller import options as controller_options
from bedplate.ipam.node import options as node_options

GUIDES = ROOT / "docs" / "guides"
PAGES = (
    *("ipam.md", "ipam-debug.md", "ipam-edit-pools.md"),
    *("migrate-from-nv-ipam.md", "migrate-from-whereabouts.md", "migrate-from-host-local.md"),
)
WITH_COMMANDS = ("ipam.md", "ipam-debug.md", "migrate-from-nv-ipam.md", "migrate-from-host-local.md")
PLUGIN = ROOT / "docs" / "reference" / "nv-ipam.md"
CRATE = ROOT / "crates" / "nv-ipam" / "src"
# What a page tells people to run and this test cannot -> the test that does.
ELSEWHERE = {
    r"kubectl logs ": "tests/lab/test_ipam_network.py",
    r"make (docker-build docker-push|manifest|image)$": "tests/deploy/test_guides.py",
    r"bedplate lab load-image ": "tests/deploy/test_tutorials.py",
    r"make check-image$": "tests/deploy/test_guides_lab.py",
    r"kubectl rollout status ": "tests/deploy/test_guides_lab.py",
    r"kubectl get secret nv-ipam-webhook-server-cert ": "tests/lab/test_ipam_overlay.py",
}
# Flags of other programs that the pages name.
OF_OTHERS = {"--ignore-daemonsets", "--delete-emptydir-data", "--selector"}


def run(server: servers.Server, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    folders = f"{Path(sys.executable).parent}:{programs.built('kubectl').parent}"
    environ = {**os.environ, "PATH": f"{folders}:{os.environ['PATH']}", "KUBECONFIG": str(server.kubeconfig)}
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=ROOT,
        env=environ,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def defined(own_server: servers.Server, kubectl_program: Path) -> servers.Server:
    """The server with the pools' definitions, as people who read about pools have it."""
    for line in (
        "bedplate ipam crds | kubectl apply -f -",
        "kubectl wait --for=condition=Established --timeout=60s crd/ippools.nv-ipam.nvidia.com",
        "kubectl wait --for=condition=Established --timeout=60s crd/cidrpools.nv-ipam.nvidia.com",
    ):
        done = run(own_server, line)
        assert done.returncode == 0, done.stderr
    return own_server


def blocks(page: Path, kind: str) -> list[str]:
    found = re.findall(rf"(?m)^( *)```{kind}\n(.*?)^ *```", page.read_text(), re.DOTALL)
    return ["\n".join(line.removeprefix(indent) for line in text.splitlines()) for indent, text in found]


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_every_command_of_a_guide_works(defined: servers.Server, page: str) -> None:
    lines = console_lines(GUIDES / page)
    assert lines
    for line in lines:
        if any(re.match(pattern, line) for pattern in ELSEWHERE):
            continue
        done = run(defined, line)
        assert done.returncode == 0, f"{page}: {line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr


def test_the_doctor_sees_that_nothing_of_an_overlay_runs(defined: servers.Server) -> None:
    """Objects alone, without any pod: each part that does not work is told."""
    overlay = "kubectl kustomize deploy/overlays/self-signed"
    assert run(defined, f"{overlay} | kubectl apply -f -").returncode == 0
    try:
        findings: list[dict[str, Any]] = []
        account = "system:serviceaccount:kube-system:nv-ipam-"

        def has_rights() -> bool:
            done = run(defined, "bedplate doctor ipam -o json")
            assert done.returncode == 1, done.stdout + done.stderr
            findings[:] = json.loads(done.stdout)["findings"]
            return [one["level"] for one in findings if one["about"].startswith(account)] == ["ok", "ok"]

        # A server grants rights a moment after it took the role.
        wait_until(has_rights, "the accounts have their rights", describe=lambda: findings)
    finally:
        # The webhook first: nobody answers it, so that no pool could be changed or deleted.
        run(defined, "kubectl delete validatingwebhookconfiguration nv-ipam-validating-webhook-configuration")
        run(defined, f"{overlay} | kubectl delete --ignore-not-found --wait=false -f -")
        run(defined, "kubectl wait --for=delete --timeout=120s crd/ippools.nv-ipam.nvidia.com")
        run(defined, "kubectl wait --for=delete --timeout=120s crd/cidrpools.nv-ipam.nvidia.com")
    wrong = " ".join(f"{one['check']} {one['message']}" for one in findings if one["level"] == "problem")
    assert "controller 0 of 2 replicas are ready" in wrong
    assert "no CA bundle" in wrong and "it has no ready pod" in wrong
    assert "cannot be reached, so pools cannot be created or changed" in wrong


def test_what_is_shown_elsewhere_is_there() -> None:
    assert all((ROOT / place).exists() for place in ELSEWHERE.values())


@pytest.mark.parametrize("page", PAGES)
def test_api_servers_take_the_pools_that_a_guide_shows(defined: servers.Server, page: str) -> None:
    for text in blocks(GUIDES / page, "yaml"):
        done = run(defined, "kubectl apply --dry-run=server --validate=strict -f -", text)
        assert done.returncode == 0, f"{page}:\n{text}\n{done.stderr}"


def test_the_file_of_pools_is_what_the_guide_shows() -> None:
    shown = [yaml.safe_load(text) for text in blocks(GUIDES / "ipam.md", "yaml")]
    assert shown == list(yaml.safe_load_all((GUIDES / "ipam-pools.yaml").read_text()))


def keys_of_plugin() -> dict[str, str]:
    """Key of `ipam` → default, from the page."""
    section = PLUGIN.read_text().split("## Configuration")[1].split("Outside `ipam`")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    return {name.strip(" `"): default.strip(" `") for name, default in rows}


@pytest.mark.parametrize("page", PAGES)
def test_network_configurations_of_a_guide_have_only_keys_of_the_plugin(page: str) -> None:
    for text in blocks(GUIDES / page, "json"):
        document = json.loads(text)
        assert set(document.get("ipam", document)) <= set(keys_of_plugin())


def test_the_page_of_the_plugin_names_every_key_and_default_of_the_program() -> None:
    settings = (CRATE / "settings.rs").read_text()
    defaults = keys_of_plugin()
    read = set(re.findall(r'"([a-zA-Z]+)"(?: =>|\.as)', (CRATE / "network.rs").read_text()))
    for name, default in defaults.items():
        if name == "type":
            continue
        assert any(name.lower() == key.lower() for key in read), f"network.rs reads no {name}: {sorted(read)}"
        if default and default != "false" and not default.startswith("the network's"):
            assert f'"{default}"' in settings or f" = {default};" in settings, f"{name}: {default}"


def test_the_page_of_the_plugin_names_every_code_of_the_program() -> None:
    used = set(re.findall(r"pub const [A-Z_]+: u32 = (\d+);", (CRATE / "error.rs").read_text()))
    section = PLUGIN.read_text().split("## Results")[1]
    assert set(re.findall(r"(?m)^\| (\d+) \|", section)) == used


def flags_of(command: click.Command, ctx: click.Context) -> Iterator[str]:
    yield from (name for one in command.params for name in (*one.opts, *one.secondary_opts))
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None
            yield from flags_of(child, click.Context(child, info_name=name, parent=ctx))


def test_every_flag_that_a_page_names_exists() -> None:
    known = {f"--{one.name}" for module in (controller_options, node_options) for one, _ in module.Options().items()}
    known |= set(flags_of(root, click.Context(root, info_name="bedplate"))) | OF_OTHERS
    pages = [*(GUIDES / page for page in PAGES), PLUGIN, ROOT / "docs/explanation/ipam.md"]
    for page in pages:
        for code in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
            if code.startswith("kubectl"):
                continue
            for name in re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", code):
                assert name in known, f"{page.name}: {name}"
