"""The overlays of address management: every name, label, argument, mount and right of the original's, and what is ours.

`ipam-overlays.tsv` holds the original's facts, one a line: the overlays it is true in, the object, the path, the value.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.conftest import ROOT, Program, documents, of_kind
from tests.lab.ipam_lab import definition
from tests.waiting import wait_until

OVERLAYS = ROOT / "deploy" / "overlays"
ORIGINAL = ("no-webhook", "certmanager", "openshift")
OURS = (*ORIGINAL, "self-signed")
FACTS = Path(__file__).with_name("ipam-overlays.tsv")
CONTROLLER, NODE = "Deployment/nv-ipam-controller", "DaemonSet/nv-ipam-node-ds"
ROLE, NODE_ROLE = "ClusterRole/nv-ipam-controller", "ClusterRole/nv-ipam-node"
POOLS = ("ippools", "cidrpools")
LEASES = "coordination.k8s.io/leases"
# Rights that nobody here uses: blocks stood in annotations of nodes and pools in a configmap once; Leases are others'.
DROPPED = {
    *((ROLE, "may", f"{verb} /nodes") for verb in ("patch", "update")),
    *((ROLE, "may", f"{verb} /configmaps") for verb in ("get", "list", "watch", "delete")),
    *((ROLE, "may", f"create nv-ipam.nvidia.com/{pool}") for pool in POOLS),
    *((ROLE, "may", f"{verb} {LEASES}") for verb in ("get", "list", "watch", "update", "patch", "delete")),
}
PROBE = ".spec.template.spec.containers[node]"
ADDED = {
    *((ROLE, "may", f"patch nv-ipam.nvidia.com/{pool}") for pool in POOLS),
    (ROLE, "may", "list /pods"),
    *((ROLE, "may", f"{verb} {LEASES} dd1643cf.nvidia.com") for verb in ("get", "update")),
    *((NODE_ROLE, "may", f"{verb} /events") for verb in ("create", "patch")),
    (NODE, f"{PROBE}.livenessProbe.httpGet.path", "/healthz"),
    (NODE, f"{PROBE}.livenessProbe.httpGet.port", "8081"),
    (NODE, f"{PROBE}.livenessProbe.initialDelaySeconds", "15"),
    (NODE, f"{PROBE}.livenessProbe.periodSeconds", "20"),
    (NODE, f"{PROBE}.livenessProbe.timeoutSeconds", "5"),
    (NODE, f"{PROBE}.readinessProbe.httpGet.path", "/readyz"),
    (NODE, f"{PROBE}.readinessProbe.httpGet.port", "8081"),
    (NODE, f"{PROBE}.readinessProbe.initialDelaySeconds", "5"),
    (NODE, f"{PROBE}.readinessProbe.periodSeconds", "10"),
    (NODE, f"{PROBE}.readinessProbe.timeoutSeconds", "5"),
    (NODE, f"{PROBE}.volumeMounts[cri].name", "cri"),
    (NODE, f"{PROBE}.volumeMounts[cri].mountPropagation", "HostToContainer"),
    (NODE, ".spec.template.spec.volumes[cri].name", "cri"),
    (NODE, ".spec.template.spec.volumes[cri].hostPath.type", "DirectoryOrCreate"),
}
# Whose text is ours alone.
FREE = (".image", ".annotations.kubernetes.io/description")

Fact = tuple[str, str, str]


def sockets(folder: str, name: str) -> set[Fact]:
    """What the daemon has of the container runtime."""
    return {
        (NODE, f"{PROBE}.args", f"--cri-socket=unix://{folder}/{name}"),
        (NODE, f"{PROBE}.volumeMounts[cri].mountPath", folder),
        (NODE, ".spec.template.spec.volumes[cri].hostPath.path", folder),
    }


def facts_of(thing: dict[str, Any]) -> Iterator[Fact]:
    """An object, flattened; lists of words have no order, rights are told one by one."""
    who = f"{thing['kind']}/{thing['metadata']['name']}"
    for rule in thing.pop("rules", ()):
        named = ",".join(rule.get("resourceNames", ()))
        for verb in rule["verbs"]:
            for resource in rule["resources"]:
                yield who, "may", f"{verb} {rule['apiGroups'][0]}/{resource}" + (f" {named}" if named else "")
    for path, value in flattened(thing, ""):
        if not path.endswith(FREE):
            yield who, path, value


def flattened(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flattened(inner, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            name = f"[{inner.get('name', number)}]" if isinstance(inner, dict) else ""
            yield from flattened(inner, path + name)
    else:
        yield path, value if isinstance(value, str) and value else json.dumps(value)


def known(overlay: str) -> set[Fact]:
    rows = [line.split("\t") for line in FACTS.read_text().splitlines() if not line.startswith("#")]
    return {(who, path, value) for where, who, path, value in rows if where == "all" or overlay in where.split(",")}


@pytest.fixture
def kustomize(kubectl_program: Path, tmp_path: Path) -> Program:
    return Program(kubectl_program, tmp_path)


def rendered(kustomize: Program, overlay: str) -> list[dict[str, Any]]:
    return documents(kustomize("kustomize", OVERLAYS / overlay))


def facts_in(objects: list[dict[str, Any]]) -> set[Fact]:
    return {fact for each in objects if each["kind"] != "CustomResourceDefinition" for fact in facts_of(each)}


@pytest.mark.parametrize("overlay", ORIGINAL)
def test_an_overlay_differs_from_the_originals_in_what_is_meant_and_in_nothing_else(
    overlay: str, kustomize: Program
) -> None:
    found = facts_in(rendered(kustomize, overlay))
    runtime = (
        sockets("/run/crio", "crio.sock") if overlay == "openshift" else sockets("/run/containerd", "containerd.sock")
    )
    missing, more = known(overlay) - found, found - known(overlay)
    assert len(known(overlay)) > 100, "the table is read"
    assert missing - DROPPED == set()
    assert more - ADDED - runtime == set()
    assert (DROPPED | ADDED | runtime) - missing - more == set(), "the lists of differences name what does not differ"


@pytest.mark.parametrize("overlay", OURS)
def test_an_overlay_has_the_pools_resources_and_one_image(overlay: str, kustomize: Program) -> None:
    objects = rendered(kustomize, overlay)
    kinds = [each["metadata"]["name"] for each in objects if each["kind"] == "CustomResourceDefinition"]
    assert sorted(kinds) == ["cidrpools.nv-ipam.nvidia.com", "ippools.nv-ipam.nvidia.com"]
    images = {
        each["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in objects
        if each["kind"] in CONTROLLER + NODE
    }
    assert len(images) == 1
    assert all(each["metadata"]["labels"]["app"] == "nvidia-k8s-ipam" for each in objects)


def test_the_self_signed_overlay_is_the_webhook_without_anybodys_certificate(kustomize: Program) -> None:
    plain = facts_in(rendered(kustomize, "no-webhook"))
    found = facts_in(rendered(kustomize, "self-signed"))
    more = {fact for fact in found - plain if not fact[1].startswith((".metadata.", ".kind", ".apiVersion"))}
    args = {value for who, path, value in more if who == CONTROLLER and path.endswith(".args")}
    assert plain <= found
    assert args == {"--webhook=true", "--webhook-self-signed=true"}
    webhook = {fact for fact in known("certmanager") if fact[0].startswith(("Service/", "ValidatingWebhook"))}
    assert {fact for fact in webhook if "inject-ca-from" not in fact[1]} <= found
    rights = {value for who, path, value in more if path == "may"}
    assert all("secrets" in right or "validatingwebhookconfigurations" in right for right in rights)
    secret, configuration = "nv-ipam-webhook-server-cert", "nv-ipam-validating-webhook-configuration"
    assert not {right for right in rights if secret not in right and configuration not in right}
    assert not {right for right in rights if right.split()[0] in ("create", "patch", "delete", "list", "watch")}
    (shipped,) = [each for each in rendered(kustomize, "self-signed") if each["kind"] == "Secret"]
    assert shipped["metadata"]["name"] == secret and not {"data", "stringData", "type"} & set(shipped)


def test_the_certificate_follows_the_namespace_that_an_overlay_is_given(kustomize: Program, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    overlay = tmp_path / "deploy" / "overlays" / "certmanager"
    text = (overlay / "kustomization.yaml").read_text()
    (overlay / "kustomization.yaml").write_text(text.replace("namespace: kube-system", "namespace: elsewhere"))
    objects = documents(kustomize("kustomize", overlay))
    assert of_kind(objects, "Certificate")["spec"]["dnsNames"] == [
        "nv-ipam-webhook-service.elsewhere.svc",
        "nv-ipam-webhook-service.elsewhere.svc.cluster.local",
    ]
    webhook = of_kind(objects, "ValidatingWebhookConfiguration")
    assert webhook["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "elsewhere/nv-ipam-serving-cert"}
    assert {each["clientConfig"]["service"]["namespace"] for each in webhook["webhooks"]} == {"elsewhere"}


@pytest.fixture
def certificates(kubectl: Program) -> Iterator[None]:
    """The kinds of cert-manager, without cert-manager."""
    names = {"Certificate": "certificates", "Issuer": "issuers"}
    manifest = yaml.safe_dump_all([definition(kind, plural, "cert-manager.io") for kind, plural in names.items()])
    kubectl("apply", "-f", "-", stdin=manifest)
    try:
        for plural in names.values():
            kubectl("wait", "--for=condition=Established", f"crd/{plural}.cert-manager.io", "--timeout=120s")
        yield
    finally:
        # The next creation must not meet those that are being deleted.
        kubectl("delete", "-f", "-", "--ignore-not-found", "--timeout=120s", stdin=manifest)


# One at a time: the kinds of cert-manager have the same names on a server that tests share.
@pytest.mark.xdist_group("certificates")
@pytest.mark.parametrize("overlay", OURS)
def test_an_api_server_takes_every_object_of_an_overlay(overlay: str, kubectl: Program, certificates: None) -> None:
    expected = {(each["kind"].lower(), each["metadata"]["name"]) for each in rendered(kubectl, overlay)}

    def taken() -> subprocess.CompletedProcess[str] | None:
        done = kubectl.attempt(*_dry_run(overlay))
        return None if done.returncode else done

    # A server that has just learnt of a kind may not offer it to everybody yet.
    done = wait_until(
        taken, "every object is taken", step_s=0.5, describe=lambda: kubectl.attempt(*_dry_run(overlay)).stderr
    )
    assert done is not None
    # The one warning there is would be there with the original, too: old clusters call their control plane `master`.
    # Other tests may have made the pools' definitions on this server without kubectl, which kubectl remarks on.
    expected_warnings = ("node-role.kubernetes.io/master", "resource customresourcedefinitions/")
    warned = [line for line in done.stderr.splitlines() if not any(text in line for text in expected_warnings)]
    assert warned == []
    told = [line.partition(" ")[0].partition("/") for line in done.stdout.splitlines()]
    assert {(kind.partition(".")[0], name) for kind, _, name in told} == expected


def _dry_run(overlay: str) -> tuple[str | Path, ...]:
    return "apply", "-k", OVERLAYS / overlay, "--dry-run=server", "--validate=strict"
