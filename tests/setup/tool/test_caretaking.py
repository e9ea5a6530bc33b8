"""The care for clusters by cm-kubernetes-setup: the ingress certificate on an API server, and what is refused before
anything is changed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from cryptography import x509
from tests.head.ingress.test_ingress import deployment
from tests.setup.tool.driving import Tool

from bedplate.api.resources import DEPLOYMENTS, SECRETS
from bedplate.head import Obj
from bedplate.head.ingress import certificates, installing
from bedplate.kube import Client
from bedplate.serving import issuing
from bedplate.setup.tool import questions

FQDN = "cluster.example.com"


@pytest.fixture
async def tool(tmp_path: Path) -> Tool:
    tool = await asyncio.to_thread(Tool, tmp_path)
    values: Any = {"trusted_domains": (FQDN, "master")}
    await asyncio.to_thread(tool.put, ("kubernetes", Obj("KubeCluster", "default", values)))
    return tool


async def call(tool: Tool, *words: str | Path) -> Any:
    pki = (
        ["--pki", str(tool.data.parent / "pki"), "--log-file", str(tool.log)] if "--configure-ingress" in words else []
    )
    return await asyncio.to_thread(tool, *words, *pki)


async def run(tool: Tool, *words: str | Path) -> tuple[int, str]:
    """The program itself: stages take signals, which a thread cannot."""
    pki = ["--pki", tool.data.parent / "pki"] if "--configure-ingress" in words else []
    line = [*words, "--data", tool.data, *pki, "--log-file", tool.log]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bedplate.apps.kubernetessetup", *map(str, line), stdout=PIPE, stderr=STDOUT
    )
    said, _ = await child.communicate()
    assert child.returncode is not None
    return child.returncode, said.decode()


def own_pair(folder: Path, hosts: list[str], *, days: int = 365) -> tuple[Path, Path]:
    begins = datetime.now(UTC) - timedelta(days=100)
    pair = issuing.self_signed(hosts[0], hosts, begins, timedelta(days=100 + days))
    folder.mkdir(exist_ok=True)
    pair.write(folder, "server")
    return folder / "server.crt", folder / "server.key"


async def test_items_177_179_five_stages_give_the_ingress_a_certificate_for_all_names(
    tool: Tool, server: Any, client: Client, namespace: str
) -> None:
    (tool.data / "kubernetes").mkdir()
    shutil.copy(server.kubeconfig, tool.data / "kubernetes" / "default.kubeconfig")
    body = deployment("--election-id=x")
    body["metadata"] = {"name": "controller", "labels": body["metadata"]["labels"]}
    await client.create(DEPLOYMENTS, body, namespace)
    try:
        code, said = await run(tool, "--configure-ingress", "--trusted-domains", f"{FQDN},*.apps.{FQDN},10.0.0.1")
        assert code == 0, said
        lines = [line for line in said.splitlines() if line.startswith(("## Progress", "#### stage"))]
        expected = [
            line
            for number, name in enumerate(installing.STAGES)
            for line in (f"## Progress: {20 * number}", f"#### stage: kubernetes: {name}")
        ]
        assert lines == [*expected, "## Progress: 100"]
        folder = tool.data.parent / "pki" / "default"
        assert sorted(path.name for path in folder.iterdir()) == sorted(certificates.FILES)
        assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
        certificate = (folder / "ingress-server.crt").read_bytes()
        assert issuing.hosts_of(x509.load_pem_x509_certificate(certificate)) == {FQDN, f"*.apps.{FQDN}", "10.0.0.1"}
        secret = await client.get(SECRETS.raw(), installing.SECRET, namespace)
        assert secret["data"]["tls.crt"] == base64.b64encode(certificate).decode()
        crt, key = own_pair(tool.data.parent / "own", ["elsewhere.example.com"])
        code, said = await run(tool, "--configure-ingress", "--certificate", crt, "--certificate-key", key)
        assert code == 0, said
        assert f"Warning: the certificate has no name for {FQDN}" in said and "Executing 3 stages" in said
        pods = (await installing.find(client)).body["spec"]["template"]["metadata"]["annotations"]
        assert pods[installing.DIGEST] == hashlib.sha256(crt.read_bytes()).hexdigest()[:32]
    finally:
        await client.delete(DEPLOYMENTS, "controller", namespace)


async def test_item_178_a_pair_that_cannot_be_used_is_refused_before_any_stage(tool: Tool) -> None:
    crt, key = own_pair(tool.data.parent / "a", [FQDN])
    _, other = own_pair(tool.data.parent / "b", [FQDN])
    old, old_key = own_pair(tool.data.parent / "c", [FQDN], days=-1)
    for words, why in (
        (("--certificate", crt, "--certificate-key", other), "does not belong"),
        (("--certificate", old, "--certificate-key", old_key), "expired"),
        (("--certificate", crt), "belong together"),
        (("--certificate", crt, "--certificate-key", key, "--trusted-domains", "x"), "--trusted-domains is for"),
        (("--certificate", tool.data / "none", "--certificate-key", key), "cannot be read"),
        (("--cluster", ".."), "there is no cluster"),
    ):
        result = await call(tool, "--configure-ingress", *words)
        assert result.exit_code in (1, 2) and why in result.output and "#### stage" not in result.output, result.output


async def test_item_181_a_restore_needs_a_confirmation_and_a_whole_snapshot(tool: Tool, tmp_path: Path) -> None:
    file = tmp_path / "file.db"
    file.write_bytes(bytes(100))
    log = ("--log-file", str(tool.log))
    for words, code, why in (
        ((file,), 2, "nothing was changed"),
        ((file, "--yes-i-really-mean-it", *log), 2, "not a snapshot"),
        (("none", "--yes-i-really-mean-it", *log), 1, "neither a file none nor a snapshot"),
        (("../default", "--yes-i-really-mean-it", *log), 1, "neither a file"),
    ):
        result = await call(tool, "--etcd-restore", *words)
        assert (result.exit_code, why in result.output) == (code, True), result.output
    assert "no snapshot of the cluster default" in (await call(tool, "--etcd-snapshots")).output
    whole(file, b"/registry/namespaces/default")
    planned = await call(tool, "--etcd-restore", file, "--yes-i-really-mean-it", "--plan")
    assert planned.exit_code == 0 and "Plan: 9 stages" in planned.output
    assert planned.output.index("Unpack Snapshot") < planned.output.index("Halt API Servers")
    assert not (tool.data / "etcd-snapshots").exists(), "a plan copies nothing"


async def test_item_181_a_snapshot_goes_to_no_place_that_cannot_hold_it(tool: Tool, tmp_path: Path) -> None:
    for file, why in (
        (tmp_path / "none" / "x.db", "its folder does not exist"),
        (tmp_path, "not a regular file"),
        (Path(os.devnull), "not a regular file"),
    ):
        result = await call(tool, "--etcd-snapshot", file)
        assert result.exit_code == 2 and f"{file} cannot be written: " in result.output, result.output
        assert why in result.output and "no snapshot was taken" in result.output
    assert Path(os.devnull).is_char_device(), "a device stays one"


def whole(file: Path, held: bytes) -> None:
    """A file that ends as snapshots do, with something in it."""
    body = held.ljust(4096, b"\0")
    file.write_bytes(body + hashlib.sha256(body).digest())


async def test_item_181_a_snapshot_of_another_cluster_is_refused_and_one_of_this_is_copied_once(
    tool: Tool, tmp_path: Path
) -> None:
    own, other = (issuing.self_signed(name, [name], datetime.now(UTC), timedelta(days=1)) for name in ("a", "b"))
    config = tool.data / "kubernetes" / "default.kubeconfig"
    config.parent.mkdir()
    config.write_text(f"    certificate-authority-data: {base64.b64encode(own.certificate).decode()}\n")
    file, root = tmp_path / "file.db", b"/registry/configmaps/kube-system/kube-root-ca.crt"
    words = (file, "--yes-i-really-mean-it", "--log-file", tool.log)
    for held, why in ((root + other.certificate, "is a snapshot of another cluster"), (b"x", "no objects of Kubern")):
        whole(file, held)
        result = await call(tool, "--etcd-restore", *words)
        assert result.exit_code == 2 and why in result.output and "nothing was changed" in result.output, result.output
        assert "#### stage" not in result.output and not (tool.data / "etcd-snapshots").exists()
    whole(file, root + other.certificate)
    refused = await call(tool, "--etcd-restore", *words)
    assert "--accept-other-authority" in refused.output
    accepted = await call(tool, "--etcd-restore", *words[:2], "--accept-other-authority", "--plan")
    assert accepted.exit_code == 0 and "Publish Authority" in accepted.output, accepted.output
    whole(file, b"x")
    assert (await call(tool, "--etcd-restore", *words, "--accept-other-authority")).exit_code == 2
    whole(file, root + own.certificate)
    planned = await call(tool, "--etcd-restore", *words[:2], "--accept-other-authority", "--plan")
    assert "Publish Authority" not in planned.output, "it is the cluster's own"
    for _ in range(2):
        code, said = await run(tool, "--etcd-restore", *words[:2])
        assert code == 1 and "#### stage: kubernetes: Check Snapshot" in said, said
    assert len(list((tool.data / "etcd-snapshots" / "default").glob("*.db"))) == 1


def test_the_question_is_whether_there_is_a_pair(tool: Tool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    monkeypatch.setattr(click, "confirm", lambda text, **_: asked.append(text) or len(asked) > 1)
    monkeypatch.setattr(click, "prompt", lambda text, **more: more.get("default") or tmp_path / text.split()[-1])

    class Clusters:
        def mode(self, name: str) -> list[str]:
            return ["default"]

        def get(self, place: Any) -> Obj:
            return Obj("KubeCluster", "default", {"trusted_domains": (FQDN, "master")})

    given: Any = {"cluster": None, "trusted_domains": None}
    first = questions.answered(given, Clusters())  # type: ignore[arg-type]
    assert (first["cluster"], first["trusted_domains"]) == ("default", f"{FQDN},master")
    second = questions.answered(given, Clusters())  # type: ignore[arg-type]
    assert second["certificate"] == tmp_path / "server.crt" and second["trusted_domains"] is None
    assert asked[0] == "Do you want to configure an existing, properly signed Server certificate pair?"
