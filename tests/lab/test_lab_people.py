"""People on a cluster with real kubelets: what is refused, and whose processes run on the nodes.

One lab for all tests. The permission manager runs inside it from our image; John, Jane and Mary are accounts of its
nodes, added with `cm-kubernetes-setup`, and use the kubeconfigs that it wrote into their homes. containerd is one that
knows `supplementalGroupsPolicy`, without which a kubelet refuses every pod with a host path of theirs. The kernel takes
as long as all others together (an image, the documented minute without a gateway), and is left to `make soak`.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.conftest import IMAGE
from tests.lab import gateway_lab, kernelimage
from tests.lab.people_lab import GROUP, HOMES, NODES, PATIENCE_S, PEOPLE, Cluster, moved, our_image, pod
from tests.operators.permissions.test_attacks_live import PODS_TRIED
from tests.waiting import wait_until

from bedplate.api.resources import PODS, RawObject
from bedplate.kube import Client, config
from bedplate.kube import errors as kube_errors
from bedplate.operators.jupyter import names

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.external, pytest.mark.xdist_group("lab")]

MINE = ("-n", "john-restricted")
JOHN = PEOPLE["john"]
GROUPS = frozenset({JOHN, GROUP})
PLAIN: RawObject = {"containers": [{"name": "main"}]}


def mounting(path: str, spec: RawObject = PLAIN) -> RawObject:
    """A spec whose main container has a path of its node at the same place."""
    changed = copy.deepcopy(spec)
    changed["volumes"] = [{"name": "v0", "hostPath": {"path": path, "type": "Directory"}}]
    changed["containers"][0]["volumeMounts"] = [{"name": "v0", "mountPath": path}]
    return changed


@pytest.fixture(scope="module")
def cluster(new_lab: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The lab with its manager and people."""
    lab = new_lab("people")
    starting = lab.start("--nodes", str(len(NODES)), "--containerd", "built")
    archive = our_image(tmp_path_factory.mktemp("image"))
    _, told = starting.communicate(timeout=600)
    assert starting.returncode == 0, told
    made = Cluster(lab)
    made.make_accounts()
    lab.ok("load-image", str(archive))
    made.install("permissions", "manifests", "--image", IMAGE)
    made.kubectl("", "rollout", "status", "-n", "cmkpm-system", "deployment/permissions-manager", "--timeout=300s")
    paths = f"{HOMES}/john,{HOMES}/shared"
    made.setup("--add-user", "john", "--user-paths", paths, "--operators", "cm-jupyter-kernel-operator")
    made.setup("--add-user", "jane")
    made.setup("--add-user", "mary", "--allow-all-uids")
    yield made
    lab.run("down")


# Bare pods


@pytest.fixture(scope="module")
def attacks(cluster: Cluster) -> dict[str, tuple[RawObject, str, RawObject]]:
    """The table of attacks with the lab's home folders, and containers that would run."""
    return {
        name: (pod("attack", moved(bad["spec"])), rule, pod("good", moved(good["spec"])))
        for name, (bad, rule, good) in PODS_TRIED.items()
    }


def test_items_138_139_every_attack_is_refused_and_what_is_left_of_it_runs_as_john(
    cluster: Cluster, attacks: dict[str, tuple[RawObject, str, RawObject]]
) -> None:
    answers = asyncio.run(_try_all(cluster, {name: bad for name, (bad, _, _) in attacks.items()}))
    release = cluster.release("john")
    expected = {name: f"{release}-{rule}" for name, (_, rule, _) in attacks.items()}
    assert {name: rule for name, rule in expected.items() if rule not in answers[name]} == {}, answers

    # Many attacks are the same pod but for their forbidden part. Of paths that exist nowhere kubelets make nothing.
    for node in NODES:
        cluster.on(node, "install", "-d", "-o", str(JOHN), f"{HOMES}/john/data", f"{HOMES}/john/link")
    distinct = {json.dumps(good["spec"], sort_keys=True): good["spec"] for _, _, good in attacks.values()}
    good = [pod(f"good-{number}", spec) for number, spec in enumerate(distinct.values())]
    cluster.kubectl("john", "create", "-f", "-", stdin=good)
    running = cluster.until_running("john", *(each["metadata"]["name"] for each in good))
    assert len(running) == len(distinct) > 4
    for each in running:
        process = cluster.process(each)
        assert (process.uid, process.gid) == (JOHN, JOHN), (each["metadata"]["name"], process)
        assert process.groups | {JOHN} == GROUPS, (each["metadata"]["name"], process)
    assert {each["spec"]["nodeName"] for each in running} == set(NODES)
    cluster.kubectl("john", "delete", "pods", "--all", "--wait=false")


async def _try_all(cluster: Cluster, pods: dict[str, RawObject]) -> dict[str, str]:
    """What the API server says to John about each pod; none may be created."""
    async with Client(config.load(cluster.kubeconfig("john"), environ={}).with_rate(-1, 1)) as john:

        async def attempt(body: RawObject) -> str:
            try:
                created = await john.create(PODS.raw(), body, "john-restricted")
            except (kube_errors.Forbidden, kube_errors.Invalid) as refusal:
                return str(refusal)
            return f"created {created['metadata']['name']}"

        return dict(zip(pods, await asyncio.gather(*map(attempt, pods.values())), strict=True))


def test_a_path_of_the_node_is_written_as_john_and_only_where_john_could(cluster: Cluster) -> None:
    script = (
        f"id > {HOMES}/john/report; touch {HOMES}/john/locked/new 2>> {HOMES}/john/report; "
        f"echo mine > {HOMES}/john/file; exec sleep 100000"
    )
    for node in NODES:
        cluster.on(node, "install", "-d", "-m", "755", "-o", "root", f"{HOMES}/john/locked")
    cluster.kubectl("john", "create", "-f", "-", stdin=[
        {**pod("writer", mounting(f"{HOMES}/john")), "spec": _running(mounting(f"{HOMES}/john"), script)},
    ])  # fmt: skip
    (writer,) = cluster.until_running("john", "writer")
    home = cluster.home("john", writer["spec"]["nodeName"])
    wait_until(lambda: (home / "file").exists(), "john's pod has written into his home", deadline_s=PATIENCE_S)
    assert ((home / "file").stat().st_uid, (home / "file").stat().st_gid) == (JOHN, JOHN)
    report = (home / "report").read_text()
    assert f"uid={JOHN} gid={JOHN}" in report and "groups=0" not in report
    assert "Permission denied" in report and not (home / "locked" / "new").exists()
    cluster.kubectl("john", "delete", "pod", "writer", "--wait=false")


def _running(spec: RawObject, script: str) -> RawObject:
    made: RawObject = pod("x", spec)["spec"]
    made["containers"][0]["command"] = ["sh", "-c", script]
    return made


def test_item_140_with_all_uids_root_runs_without_host_paths_and_never_with_them(cluster: Cluster) -> None:
    root = {"containers": [{"name": "main", "securityContext": {"runAsUser": 0}}]}
    refusal = cluster.refused("mary", "create", "-f", "-", stdin=pod("spy", mounting(f"{HOMES}/mary", root)))
    assert f"{cluster.release('mary')}-drop-privs-w-hostpath" in refusal
    cluster.kubectl(
        "mary", "create", "-f", "-", stdin=[pod("root", root), pod("own", mounting(f"{HOMES}/mary")), pod("any", PLAIN)]
    )
    as_root, own, unsaid = cluster.until_running("mary", "root", "own", "any")
    assert (cluster.process(as_root).uid, cluster.process(unsaid).uid) == (0, 0)
    process = cluster.process(own)
    assert (process.uid, process.gid, process.groups | {process.gid}) == (
        PEOPLE["mary"],
        PEOPLE["mary"],
        {PEOPLE["mary"], GROUP},
    )
    cluster.kubectl("mary", "delete", "pods", "--all", "--wait=false")


def test_nobody_sees_or_uses_what_belongs_to_somebody_else(cluster: Cluster) -> None:
    theirs = ("-n", "jane-restricted")
    cluster.kubectl("jane", "create", "-f", "-", stdin=pod("web", PLAIN))
    cluster.until_running("jane", "web")
    for words in (
        ("get", "pods", *theirs),
        ("get", "pods", "-A"),
        ("get", "secrets", *theirs),
        ("exec", *theirs, "web", "--", "id"),
        ("logs", *theirs, "web"),
        ("delete", "pod", "web", *theirs),
        ("get", "namespaces"),
        ("get", "cmkubernetespermissionusers", "-A"),
    ):
        assert "(Forbidden)" in cluster.refused("john", *words), words
    refusal = cluster.refused("jane", "create", "-f", "-", stdin=pod("spy", mounting(f"{HOMES}/john")))
    assert f"{cluster.release('jane')}-limit-hostpath-vols" in refusal
    assert [each["metadata"]["name"] for each in cluster.get("john", "nodes")["items"]] == list(NODES)
    cluster.kubectl("jane", "delete", "pod", "web", "--wait=false")


# Pods that others make for John


def _kinds() -> dict[str, RawObject]:
    """A workload of each kind with a pod to be filled in."""
    labels = {"app": "work"}
    template = {"metadata": {"labels": labels}}
    selected = {"selector": {"matchLabels": labels}, "template": template}
    return {
        "Deployment": {"apiVersion": "apps/v1", "spec": {"replicas": 1, **selected}},
        "DaemonSet": {"apiVersion": "apps/v1", "spec": selected},
        "StatefulSet": {"apiVersion": "apps/v1", "spec": {"replicas": 1, "serviceName": "x", **selected}},
        "Job": {"apiVersion": "batch/v1", "spec": {"template": template}},
    }


def _workload(kind: str, name: str, spec: RawObject) -> RawObject:
    body = copy.deepcopy(_kinds()[kind])
    made: RawObject = pod("x", spec)["spec"]
    if kind == "Job":
        made["restartPolicy"] = "Never"
    body["spec"]["template"]["spec"] = made
    body["spec"]["template"]["metadata"]["labels"] = {"app": f"{name}-{kind.lower()}"}
    if "selector" in body["spec"]:
        body["spec"]["selector"] = {"matchLabels": {"app": f"{name}-{kind.lower()}"}}
    return {**body, "kind": kind, "metadata": {"name": f"{name}-{kind.lower()}"}}


def test_the_pods_of_workloads_are_held_to_the_same_rules(cluster: Cluster) -> None:
    kinds = list(_kinds())
    bad = [_workload(kind, "bad", mounting(f"{HOMES}/jane")) for kind in kinds]
    good = [_workload(kind, "good", mounting(f"{HOMES}/john")) for kind in kinds]
    cluster.kubectl("john", "create", "-f", "-", stdin=[*bad, *good])
    rule = f"{cluster.release('john')}-limit-hostpath-vols"

    def refused() -> bool:
        """Every bad workload says so in its Events, which John can read himself."""
        events = cluster.get("john", "events", "--field-selector", "reason=FailedCreate")["items"]
        told = {each["involvedObject"]["name"] for each in events if rule in each["message"]}
        names = {f"bad-{kind.lower()}" for kind in kinds if kind != "Deployment"}
        return names <= told and any(name.startswith("bad-deployment-") for name in told)

    wait_until(refused, "all are refused", deadline_s=PATIENCE_S, step_s=0.5, describe=cluster.situation)
    wanted = len(kinds) - 1 + len(NODES)

    def running() -> list[RawObject]:
        found = cluster.get("john", "pods")["items"]
        done = [each for each in found if each["status"]["phase"] == "Running"]
        return done if len(done) == len(found) == wanted else []

    pods = wait_until(running, "all pods run", deadline_s=PATIENCE_S, step_s=0.5, describe=cluster.situation)
    assert all(each["metadata"]["name"].startswith("good-") for each in pods)
    for each in pods:
        process = cluster.process(each)
        assert (process.uid, process.gid, process.groups | {JOHN}) == (JOHN, JOHN, GROUPS), each["metadata"]["name"]
    cluster.kubectl("john", "delete", "deployments,daemonsets,statefulsets,jobs", "--all", "--wait=false")


def test_kubectl_debug_gives_a_container_of_john_and_no_more(cluster: Cluster) -> None:
    verbs = "--verb=get,patch,update"
    cluster.kubectl("", "create", "role", "debug", *MINE, verbs, "--resource=pods/ephemeralcontainers")
    cluster.kubectl("", "create", "rolebinding", "debug", *MINE, "--role=debug", "--user=john")
    cluster.kubectl("john", "create", "-f", "-", stdin=pod("patient", mounting(f"{HOMES}/john")))
    cluster.until_running("john", "patient")
    debug = ("debug", "pod/patient", "--image=busybox", "--image-pull-policy=IfNotPresent")
    release = cluster.release("john")
    for profile, rule in (("sysadmin", "limit-privileges"), ("general", "pod-security-baseline")):
        refusal = cluster.refused("john", *debug, f"--profile={profile}", "--", "sleep", "100000")
        assert f"{release}-{rule}" in refusal, refusal
    cluster.kubectl("john", *debug, "--profile=restricted", "-c", "debugger", "--", "sleep", "100000")

    def debugged() -> RawObject | None:
        found: RawObject = cluster.get("john", "pod", "patient")
        states = found["status"].get("ephemeralContainerStatuses", ())
        return found if any("running" in each["state"] for each in states) else None

    patient = wait_until(debugged, "the debugger runs", deadline_s=PATIENCE_S, step_s=0.3, describe=cluster.situation)
    assert patient is not None
    process = cluster.process(patient, "debugger", kind="ephemeralContainerStatuses")
    assert (process.uid, process.gid, process.groups | {JOHN}) == (JOHN, JOHN, GROUPS)
    cluster.kubectl("john", "delete", "pod", "patient", "--wait=false")


# Kernels of Jupyter


@pytest.fixture(scope="module")
def kernels(cluster: Cluster) -> Cluster:
    """The cluster with the operator from our image, and an image with ipykernel in its registry."""
    kernelimage.make()
    cluster.install("jupyter", "manifests", "--image", IMAGE)
    deployment = "deployment/cm-jupyter-kernel-operator-controller-manager"
    cluster.kubectl("", "rollout", "status", "-n", SYSTEM, deployment, "--timeout=300s")
    return cluster


SYSTEM = names.NAMESPACE
OBJECTS = "services,configmaps,secrets,pods"
MANAGED = ("-l", f"{names.LABEL_MANAGED_BY}={names.OPERATOR}")


@pytest.mark.soak
def test_items_193_194_a_real_kernel_of_john_lives_in_a_pod_and_ends_with_its_gateway(
    kernels: Cluster, tmp_path: Path
) -> None:
    gateway_lab.write_kernelspec(tmp_path, "john-restricted", kernelimage.IMAGE)
    with (
        gateway_lab.gateway(kernels, "john", tmp_path) as gateway,
        gateway_lab.somebody(gateway.url, "john") as someone,
    ):
        created = someone.step()
        assert created["code"] == 201, (created, gateway.log.read_text()[-3000:], kernels.situation())
        assert someone.step() == {"step": "executed", "status": "ok", "output": "42", "ename": None}
        assert someone.step()["ename"] == "KeyboardInterrupt"
        assert someone.step()["code"] == 200, "restarted"
        assert someone.step()["output"] == "False\n"
        (resource,) = kernels.get("john", "cmjupyterkernels")["items"]
        assert {each["kind"] for each in kernels.get("", OBJECTS, *MINE, *MANAGED)["items"]} == {
            *("Service", "ConfigMap", "Secret", "Pod")
        }  # fmt: skip
        name = resource["status"]["podName"]
        (running,) = kernels.until_running("john", name)
        for container in ("kernel", "cmjksidecar"):
            process = kernels.process(running, container)
            assert (process.uid, process.gid, process.groups | {JOHN}) == (JOHN, JOHN, GROUPS), process
        _use_from_outside(kernels, name, running["status"]["podIP"], tmp_path)
        gateway.kill()
        _is_removed(kernels, resource["metadata"]["name"])


def _use_from_outside(cluster: Cluster, name: str, address: str, folder: Path) -> None:
    """A real jupyter_client outside the cluster, through the sidecar's ports."""
    show = "print(open('/var/tmp/kernel-parm.json').read())"
    file = json.loads(cluster.kubectl("john", "exec", name, "-c", "kernel", "--", "python3", "-c", show))
    with gateway_lab.jupyter_client(folder, address, file) as client:
        code = "import os, pwd\\nprint(pwd.getpwuid(os.getuid()).pw_name, os.getuid(), os.getcwd())"
        assert client.step(f"execute {code}")["output"] == f"john {JOHN} {HOMES}/john\n"
        assert client.step("execute print(input('name? '))")["output"] == "typed\n"
        assert "import" in client.step("complete impor")["matches"]
        loop = "import time\\nprint('began', flush=True)\\nwhile True: time.sleep(0.01)"
        assert client.step(f"interrupt {loop}") == {"status": "error", "ename": "KeyboardInterrupt"}


def _is_removed(cluster: Cluster, resource: str) -> None:
    """Nothing is left of the kernel but what the operator's log says."""

    def is_gone() -> bool:
        return not cluster.get("", f"cmjupyterkernels,{OBJECTS}", *MINE, *MANAGED)["items"] and (
            resource not in cluster.kubectl("", "get", "cmjupyterkernels", *MINE, "-o", "name")
        )

    wait_until(is_gone, "nothing of the kernel is left", deadline_s=PATIENCE_S, describe=cluster.situation)
    log = cluster.kubectl(
        "", "logs", "-n", SYSTEM, "-l", "control-plane=controller-manager", "-c", "manager", "--tail=-1"
    )
    assert "Container is stopped. Logs are below" in log
    line = f"cmjksidecar: Timeout receiving pings from server for {gateway_lab.TIMEOUT_S} sec. Shutting down."
    assert line in log
