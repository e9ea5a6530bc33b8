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
OURS = (*ORIGINAL, "self-signed", "containerd")
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
    # Of one namespace: in a Role.
    *((ROLE, "may", f"{verb} nv-ipam.nvidia.com/{pool}") for pool in POOLS for verb in ("get", "list", "watch")),
    *((NODE_ROLE, "may", f"{verb} nv-ipam.nvidia.com/{pool}") for pool in POOLS for verb in ("get", "list", "watch")),
    *(
        (ROLE, "may", f"{verb} nv-ipam.nvidia.com/{pool}/status")
        for pool in POOLS
        for verb in ("get", "update", "patch")
    ),
    (ROLE, "may", f"create {LEASES}"),
    *((ROLE, "may", f"{verb} /events") for verb in ("create", "patch")),
    (ROLE, "may", "get /nodes"),
    # It needs folders of the node, not the node.
    (NODE, ".spec.template.spec.containers[node].securityContext.privileged", "true"),
    # Every taint is tolerated, not three.
    *(
        (NODE, f".spec.template.spec.tolerations[{number}].{key}", value)
        for number, name in enumerate(
            ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane", "nvidia.com/gpu")
        )
        for key, value in (("key", name), ("operator", "Exists"), ("effect", "NoSchedule"))
        if (number, key) != (0, "operator")
    ),
    (CONTROLLER, ".spec.replicas", "1"),
}
PROBE = ".spec.template.spec.containers[node]"
ADDED = {
    (ROLE, "may", "list /pods"),
    (NODE, f"{PROBE}.livenessProbe.httpGet.path", "/healthz"),
    (NODE, f"{PROBE}.livenessProbe.httpGet.port", "8081"),
    (NODE, f"{PROBE}.livenessProbe.initialDelaySeconds", "15"),
    (NODE, f"{PROBE}.livenessProbe.periodSeconds", "20"),
    (NODE, f"{PROBE}.livenessProbe.timeoutSeconds", "5"),
    (NODE, f"{PROBE}.readinessProbe.httpGet.path", "/readyz"),
    (NODE, f"{PROBE}.readinessProbe.httpGet.port", "8081"),
    (NODE, f"{PROBE}.readinessProbe.initialDelaySeconds", "2"),
    (NODE, f"{PROBE}.readinessProbe.periodSeconds", "5"),
    (NODE, f"{PROBE}.readinessProbe.timeoutSeconds", "5"),
    (NODE, f"{PROBE}.args", "--static-ip-check=refuse"),
    (NODE, f"{PROBE}.securityContext.privileged", "false"),
    (NODE, f"{PROBE}.securityContext.allowPrivilegeEscalation", "false"),
    (NODE, f"{PROBE}.securityContext.seccompProfile.type", "RuntimeDefault"),
    (NODE, f"{PROBE}.securityContext.seLinuxOptions.type", "spc_t"),
    (NODE, f"{PROBE}.securityContext.capabilities.drop", "ALL"),
    (NODE, f"{PROBE}.securityContext.capabilities.add", "DAC_OVERRIDE"),
    (NODE, ".spec.template.spec.priorityClassName", "system-node-critical"),
    # A node is never without a daemon.
    (NODE, ".spec.updateStrategy.rollingUpdate.maxSurge", "1"),
    (NODE, ".spec.updateStrategy.rollingUpdate.maxUnavailable", "0"),
    (CONTROLLER, ".spec.replicas", "2"),
    (CONTROLLER, ".spec.template.spec.securityContext.runAsNonRoot", "true"),
    *(
        (CONTROLLER, f".spec.template.spec.securityContext.{key}", "65532")
        for key in ("runAsUser", "runAsGroup", "fsGroup")
    ),
    (CONTROLLER, ".spec.template.spec.securityContext.seccompProfile.type", "RuntimeDefault"),
}
# Kinds that the original does not have, and what its webhooks lack.
NEW = (
    *("NetworkPolicy/", "PodDisruptionBudget/", "Role/nv-ipam-controller", "RoleBinding/nv-ipam-controller"),
    *("Role/nv-ipam-node-pools", "RoleBinding/nv-ipam-node-pools"),
)
WEBHOOK_ADDED = {".timeoutSeconds": "5", ".namespaceSelector.matchLabels.kubernetes.io/metadata.name": "kube-system"}
# Whose text is ours alone.
FREE = (".image", ".annotations.kubernetes.io/description")

Fact = tuple[str, str, str]


def is_new(fact: Fact) -> bool:
    who, path, value = fact
    return who.startswith(NEW) or any(
        who.startswith("Validating") and path.endswith(end) and value == wanted for end, wanted in WEBHOOK_ADDED.items()
    )


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
    found = {fact for fact in facts_in(rendered(kustomize, overlay)) if not is_new(fact)}
    missing, more = known(overlay) - found, found - known(overlay)
    assert len(known(overlay)) > 100, "the table is read"
    assert missing - DROPPED == set()
    assert more - ADDED == set()
    assert (DROPPED | ADDED) - missing - more == set(), "the lists of differences name what does not differ"


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


def test_only_the_overlay_containerd_has_the_runtimes_socket(kustomize: Program) -> None:
    plain, found = (facts_in(rendered(kustomize, overlay)) for overlay in ("no-webhook", "containerd"))
    assert plain <= found
    assert {(path, value) for _, path, value in found - plain} == {
        (f"{PROBE}.args", "--cri-socket=unix:///run/containerd/containerd.sock"),
        (f"{PROBE}.volumeMounts[cri].name", "cri"),
        (f"{PROBE}.volumeMounts[cri].mountPath", "/run/containerd"),
        (f"{PROBE}.volumeMounts[cri].mountPropagation", "HostToContainer"),
        (".spec.template.spec.volumes[cri].name", "cri"),
        (".spec.template.spec.volumes[cri].hostPath.path", "/run/containerd"),
        (".spec.template.spec.volumes[cri].hostPath.type", "DirectoryOrCreate"),
    }
    for overlay in OURS:
        assert "containerd" not in json.dumps(rendered(kustomize, overlay)) or overlay == "containerd"


@pytest.mark.parametrize("overlay", OURS)
def test_a_daemon_starts_beside_the_one_it_replaces(overlay: str, kustomize: Program) -> None:
    spec = of_kind(rendered(kustomize, overlay), "DaemonSet")["spec"]
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    # Two pods on one node can share everything but a port of the node.
    pod = spec["template"]["spec"]
    ports = [port for container in pod["containers"] for port in container.get("ports", ())]
    assert not pod.get("hostNetwork") and not any("hostPort" in port for port in ports)


@pytest.mark.parametrize("overlay", OURS)
def test_the_controller_passes_pod_security_restricted(overlay: str, kustomize: Program) -> None:
    objects = rendered(kustomize, overlay)
    spec = of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["seccompProfile"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert {kind for volume in spec.get("volumes", ()) for kind in volume if kind != "name"} <= {"secret", "emptyDir"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False and context["capabilities"] == {"drop": ["ALL"]}
    assert of_kind(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("overlay", OURS)
def test_the_daemon_is_not_privileged_and_runs_on_every_node(overlay: str, kustomize: Program) -> None:
    spec = of_kind(rendered(kustomize, overlay), "DaemonSet")["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["containers"][0]["securityContext"]["privileged"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


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
    selected = [each["namespaceSelector"]["matchLabels"] for each in webhook["webhooks"]]
    assert selected == [{"kubernetes.io/metadata.name": "elsewhere"}] * 2


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
