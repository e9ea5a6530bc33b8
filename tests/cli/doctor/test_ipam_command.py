"""`bedplate doctor ipam` as a program, against real and embedded API servers, with the rights that are shipped."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import testing
from tests import forkserver, servers
from tests.apps.test_ipam_cli import install_definitions

from bedplate.api.resources import NAMESPACES, SERVICE_ACCOUNTS, custom
from bedplate.cli import cluster
from bedplate.cli.doctor import ipam_command, ipam_facts, ipam_node
from bedplate.cli.doctor.ipam_command import ipam
from bedplate.cloud.doctor import Finding, note, problem
from bedplate.cloud.manager import deployed
from bedplate.ipam.pools import IPPOOLS
from bedplate.kube import Client, config

PROGRAM = Path(sys.executable).with_name("bedplate")
MANIFESTS = Path(__file__).resolve().parents[3] / "deploy/manifests"
ROLES = custom("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
BINDINGS = custom("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
LOCAL_ROLES = custom("rbac.authorization.k8s.io", "v1", "roles", "Role", True)
LOCAL_BINDINGS = custom("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True)


async def findings(server: servers.Server, *words: str) -> tuple[int, list[dict[str, Any]]]:
    command = [str(PROGRAM), "doctor", "ipam", "--kubeconfig", str(server.kubeconfig), "-o", "json", *words]
    done = await asyncio.to_thread(forkserver.run, command, capture_output=True, text=True)
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert answer["exitCode"] == done.returncode
    return done.returncode, answer["findings"]


async def once_granted(server: servers.Server, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """What is found when the server grants what was just bound, or at last without that."""
    for _ in range(600):
        code, found = await findings(server, *words)
        rights = {one["level"] for one in found if one["about"].startswith("system:serviceaccount:")}
        if rights == {"ok"}:
            break
        await asyncio.sleep(0.1)
    return code, found


@asynccontextmanager
async def deployed_rights(client: Client, name: str) -> AsyncIterator[None]:
    """The shipped roles under names of our own."""
    made: list[tuple[Any, str, str | None]] = []
    try:
        for part in ("controller", "node"):
            own = f"{name}-{part}"
            role = yaml.safe_load((MANIFESTS / part / "clusterrole.yaml").read_text())
            role["metadata"]["name"] = own
            subject = {"kind": "ServiceAccount", "name": own, "namespace": name}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": own}
            binding = {"metadata": {"name": own}, "roleRef": reference, "subjects": [subject]}
            here = yaml.safe_load((MANIFESTS / part / "role.yaml").read_text())
            here["metadata"] = {"name": own}
            bound = {**binding, "roleRef": {**reference, "kind": "Role"}}
            for ref, body, space in (
                (ROLES, role, None),
                (BINDINGS, binding, None),
                (LOCAL_ROLES, here, name),
                (LOCAL_BINDINGS, bound, name),
                (SERVICE_ACCOUNTS.raw(), {"metadata": {"name": own}}, name),
            ):
                await client.create(ref, body, space)
                made.append((ref, own, space))
        yield
    finally:
        for ref, own, space in made:
            await client.delete(ref, own, space)


async def test_the_shipped_roles_suffice_and_pools_are_judged(server: servers.Server, client: Client) -> None:
    await install_definitions(client)
    name = f"ipamdoctor-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES.raw(), {"metadata": {"name": name}})
    try:
        async with deployed_rights(client, name):
            spec = {"subnet": "10.0.0.0/24", "perNodeBlockSize": 500}
            await client.create(IPPOOLS.raw(), {"metadata": {"name": "bad"}, "spec": spec}, name)
            code, found = await once_granted(server, "-n", name, "--name-prefix", f"{name}-")
    finally:
        await client.delete(NAMESPACES, name)
    assert code == 1
    rights = [one for one in found if one["check"] == "rbac" and one["about"].startswith("system:serviceaccount:")]
    assert [one["level"] for one in rights] == ["ok", "ok"], rights
    (bad,) = [one for one in found if one["about"] == "IPPool bad" and one["level"] == "problem"][:1]
    assert "spec.perNodeBlockSize" in bad["message"]
    assert bad["fix"] == f"bedplate ipam explain ippool/bad -n {name} --kubeconfig={server.kubeconfig}"
    assert {one["level"] for one in found if one["check"] == "definitions"} == {"ok"}


async def test_a_node_can_be_looked_at_without_a_cluster(server: servers.Server, tmp_path: Path) -> None:
    words = ["--on-node", "--no-cluster", "--cni-conf-dir", str(tmp_path), "--cni-bin-dir", str(tmp_path)]
    code, found = await findings(server, *words, "--store-file", str(tmp_path / "store"))
    assert code == 1
    assert {one["check"] for one in found} == {"node"}


def places_in(folder: Path) -> dict[str, str]:
    return {"--cni-conf-dir": str(folder), "--cni-bin-dir": str(folder), "--store-file": str(folder / "store")}


@pytest.mark.parametrize("option", places_in(Path()))
def test_a_place_that_is_named_is_looked_at_also_where_nothing_is(option: str, tmp_path: Path) -> None:
    done = testing.CliRunner().invoke(ipam, ["--no-cluster", option, places_in(tmp_path)[option]])
    assert done.exit_code == 1 and f"{tmp_path}" in done.output and "does not exist" in done.output, done.output


def test_a_machine_that_is_no_node_is_no_clean_bill_where_nothing_else_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ipam_node, "is_node", lambda places: False)
    done = testing.CliRunner().invoke(ipam, ["--no-cluster"])
    assert done.exit_code == 2 and "could not be checked: this machine does not seem to be one" in done.output


def test_nothing_is_missed_in_the_cluster_of_up_which_has_its_programs_in_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [
        note("daemons", "DaemonSet", "does not exist"),
        problem("daemons", "d", "is wrong", ""),
        note("pools", "p", "x"),
    ]

    async def judge(settings: config.ClientConfig, called: ipam_facts.Names) -> list[Finding]:
        return told

    monkeypatch.setattr(ipam_command, "_judge", judge)
    monkeypatch.setattr(cluster, "connection", lambda kubeconfig: config.ClientConfig(server="https://127.0.0.1:1"))
    examined = ipam_command._cluster(str(tmp_path / "kubeconfig"), ipam_facts.Names())
    assert asyncio.run(examined) == told
    deployed.write_flags(tmp_path, [])
    examined = ipam_command._cluster(str(tmp_path / "kubeconfig"), ipam_facts.Names())
    assert asyncio.run(examined) == told[1:]
