"""A dry release into a registry, then an install of each system from it on real nodes, with the guides' own commands.

What a reader sets is in the environment (`IMG`, the cluster, the rack's credentials) or in the file that the page tells
them to edit; the commands are run as they are on the page. The image is built and pushed to a registry over HTTPS, from
which the nodes pull; charts and manifests are rewritten and charts pushed by the script of the release workflow. Clouds
are simulated and answer on the lab's bridge. For the migration of address management the original's own programs
(`BEDPLATE_PEERS`) run from an image first, and pods come and go all the time while they are replaced. The other way to
give nodes the image, `bedplate lab load-image`, is in test_tutorials.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.deploy.conftest import VERSION, checkout
from tests.deploy.guides_lab import (
    BMM,
    ORIGINAL,
    OXIDE,
    Clouds,
    Cluster,
    Lab,
    Reader,
    bmm_config,
    original_archive,
    original_workloads,
)
from tests.deploy.test_registry import TlsRegistry, tls_registry, useless_containers
from tests.deploy.test_release import scripts
from tests.lab.ipam_lab import Visitors, definition
from tests.lab.test_ipam_overlay import Overlaid, _install_attach, attachment, named
from tests.waiting import DEADLINE_S, wait_until

from bedplate.lab import binaries

pytestmark = [
    pytest.mark.root,
    pytest.mark.lab,
    pytest.mark.xdist_group("lab"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root"),
]
SUBNET = f"10.84.{os.getpid() % 250}"
NODES = {"bmm-001": f"{SUBNET}.20", "bmm-002": f"{SUBNET}.21", "oxide-001": f"{SUBNET}.22"}
IPAM = "app=nvidia-k8s-ipam"
CLOUDLYCKE = "k8s-app=cloudlycke-cloud-controller-manager"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guides")


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[Lab]:
    made = Lab(folder)
    nodes = [word for name, address in NODES.items() for word in ("--node", f"{name}={address}")]
    made.command("up", *nodes, "--subnet", f"{SUBNET}.0/24", "--cloud-provider", "external", "--link", "fabric0")
    try:
        yield made
    finally:
        made.command("down")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def clouds(lab: Lab) -> Iterator[Clouds]:
    with Clouds(f"{SUBNET}.1", NODES) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    return Cluster(lab)


@pytest.fixture(scope="module")
def machines(lab: Lab) -> Overlaid:
    """The same cluster, with its nodes as machines."""
    return Overlaid(lab, tuple(NODES))


@pytest.fixture(scope="module")
def registry(folder: Path, machines: Overlaid) -> Iterator[TlsRegistry]:
    """On the lab's bridge; the nodes trust its certificate, as those of a cluster with a registry of its own do."""
    with tls_registry(folder, f"{SUBNET}.1") as running:
        place = f"/etc/containerd/certs.d/{running.address}"
        url = f"https://{running.address}"
        hosts = f'server = "{url}"\nca = "{place}/ca.crt"\n'
        for node in NODES:
            machines.write(node, f"{place}/ca.crt", running.authority.read_text())
            machines.write(node, f"{place}/hosts.toml", hosts)
        yield running


@pytest.fixture(scope="module")
def reader(folder: Path, lab: Lab, registry: TlsRegistry, clouds: Clouds) -> Reader:
    """In a fresh checkout, with nothing built and nothing pushed."""
    (folder / "checkout").mkdir()
    helm = lab.program("helm", programs.HELM)
    folders = (
        *(useless_containers(folder), Path(sys.executable).parent),
        *(programs.built("kubectl").parent, programs.built("helm", programs.HELM).parent),
    )
    environ = {
        **helm.environ,
        **registry.environ,
        # Cargo and its toolchain are found from there.
        "HOME": os.environ["HOME"],
        "PATH": ":".join((*map(str, folders), os.environ["PATH"])),
        "BEDPLATE_CACHE": str(binaries.cache_folder()),
        "IMG": f"{registry.address}/bedplate:{VERSION}",
        "OXIDE_HOST": clouds.oxide.url,
        "OXIDE_TOKEN": clouds.oxide.token,
        "OXIDE_PROJECT": clouds.oxide.project,
    }
    return Reader(checkout(folder / "checkout"), environ)


@pytest.fixture(scope="module")
def released(reader: Reader, registry: TlsRegistry) -> str:
    """The image, with its digest: pushed by the guide's command, written everywhere by the release's script."""
    reader.through("deploy-nvidia-bmm.md", "make docker-build docker-push")
    digest = pushed_digest(registry)
    (script,) = [each for each in scripts() if "make manifest" in each]
    reader.run(f"mkdir -p dist\n{script}", DIGEST=digest)
    reader.environ["IMG"] += f"@{digest}"
    # The next command of the pages, and those for a lab without a registry.
    reader.run("make manifest")
    reader.skip_to("deploy-nvidia-bmm.md", "kubectl create secret ")
    reader.skip_to("deploy-oxide.md", "kubectl create secret ")
    reader.skip_to("ipam.md", "kubectl kustomize ")
    return reader.environ["IMG"]


def pushed_digest(registry: TlsRegistry) -> str:
    trust = ssl.create_default_context(cafile=registry.authority)
    request = urllib.request.Request(
        f"https://{registry.address}/v2/bedplate/manifests/{VERSION}",
        headers={"Accept": "application/vnd.oci.image.manifest.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=60, context=trust) as answer:
        return str(answer.headers["Docker-Content-Digest"])


def images_of(cluster: Cluster, selector: str) -> set[str]:
    return {container["image"] for pod in cluster.pods(selector) for container in pod["spec"]["containers"]}


def daemon_sets(cluster: Cluster) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.get("daemonset", "-n", "kube-system")["items"]}


def test_the_migration_does_not_begin_while_the_image_cannot_be_pulled(reader: Reader, cluster: Cluster) -> None:
    if "@" in reader.environ["IMG"]:
        pytest.fail("the image has been pushed already: this test comes first")
    refused = reader.attempt("make check-image")
    assert refused.returncode != 0, "no node can have the image"
    assert "cannot run on 3 of 3 nodes" in refused.stderr and "not found" in refused.stderr
    assert all(f"{node}: " in refused.stderr for node in NODES)
    assert "bedplate-image-check" not in daemon_sets(cluster)


def test_every_node_can_run_what_was_released(reader: Reader, released: str, cluster: Cluster) -> None:
    assert "runs on 3 of 3 nodes" in reader.through("migrate-from-nv-ipam.md", "make check-image")
    assert "bedplate-image-check" not in daemon_sets(cluster)


def test_the_manager_of_oxide_runs_from_its_chart_and_serves_a_load_balancer(
    reader: Reader, released: str, cluster: Cluster, clouds: Clouds
) -> None:
    assert all(cluster.is_tainted(node) for node in NODES)
    reader.through("deploy-oxide.md", "helm install rack charts/")
    cluster.until("oxide-001 is initialised", lambda: not cluster.is_tainted("oxide-001"), OXIDE)
    assert images_of(cluster, OXIDE) == {released}
    assert cluster.get("node", "oxide-001")["spec"]["providerID"].startswith("oxide://")
    assert cluster.is_tainted("bmm-001"), "a node of another cloud is left alone"
    (pod,) = cluster.until("the pod is ready", lambda: cluster.ready_pods(OXIDE), OXIDE)

    cluster.kubectl("create", "service", "loadbalancer", "web", "--tcp=80:80")
    ingress = cluster.until(
        "the Service has an address",
        lambda: cluster.get("service", "web")["status"]["loadBalancer"].get("ingress"),
        OXIDE,
    )
    floating = clouds.call(lambda: clouds.oxide.floating_ip("kubernetes-default-web"))
    assert floating is not None and ingress[0]["ip"] == floating["ip"]

    # The Secret changes, the old token is refused, and nobody restarts anything.
    clouds.call(clouds.oxide.expire_tokens)
    token = reader.environ["OXIDE_TOKEN"] = clouds.call(clouds.oxide.new_token)
    renewed = json.dumps({"stringData": {"oxide-token": token}})
    cluster.kubectl("patch", "secret", "rack-oxide-cloud-controller-manager", "-n", "kube-system", "-p", renewed)
    cluster.kubectl("delete", "service", "web", "--wait=false")
    cluster.until(
        "the Service is gone, with its floating IP",
        lambda: cluster.kubectl.attempt("get", "service", "web").returncode == 1,
        OXIDE,
    )
    assert clouds.call(lambda: clouds.oxide.floating_ip("kubernetes-default-web")) is None
    # Its probe may have failed while the token was refused.
    (same,) = cluster.until("the pod is ready", lambda: cluster.ready_pods(OXIDE), OXIDE)
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert same["status"]["containerStatuses"][0]["restartCount"] == 0


def test_the_rest_of_the_guide_for_oxide_works_and_its_chart_runs_from_the_registry(
    reader: Reader, released: str, cluster: Cluster
) -> None:
    reader.through("deploy-oxide.md", "make helm-push ")
    reader.through("deploy-oxide.md", "helm install rack oci:")
    cluster.until("the pod of the chart from the registry is ready", lambda: cluster.ready_pods(OXIDE), OXIDE)
    assert images_of(cluster, OXIDE) == {released}
    reader.rest("deploy-oxide.md")


def test_a_manager_works_where_pod_security_is_enforced_at_restricted(
    reader: Reader, released: str, cluster: Cluster, clouds: Clouds
) -> None:
    """On a network of its pod's own, as its chart's page says; the guide's way needs the machine's."""
    where = ("-n", "managers")
    cluster.kubectl("create", "namespace", "managers")
    cluster.kubectl("label", "namespace", "managers", "pod-security.kubernetes.io/enforce=restricted")
    literals = {"oxide-host": "OXIDE_HOST", "oxide-token": "OXIDE_TOKEN", "oxide-project": "OXIDE_PROJECT"}
    words = [f"--from-literal={key}={reader.environ[name]}" for key, name in literals.items()]
    cluster.kubectl("create", "secret", "generic", "rack-oxide-cloud-controller-manager", *where, *words)
    # What a manager gives a node at its start.
    kind = "node.kubernetes.io/instance-type"
    cluster.kubectl("label", "node", "oxide-001", f"{kind}-")
    chart = "charts/oxide-cloud-controller-manager --namespace managers"
    reader.run(f"helm install rack {chart} --set deployment.hostNetwork=false --set deployment.dnsPolicy=ClusterFirst")

    def describe() -> str:
        events = cluster.kubectl.attempt("get", "events", *where).stdout
        return events + cluster.kubectl.attempt("logs", *where, "-l", OXIDE, "--tail=40").stdout

    def is_labelled() -> bool:
        return kind in cluster.get("node", "oxide-001")["metadata"]["labels"]

    wait_until(is_labelled, "the node has its label again", deadline_s=2 * DEADLINE_S, step_s=0.5, describe=describe)
    cluster.kubectl("wait", *where, "--for=condition=Ready", "pod", "-l", OXIDE, f"--timeout={DEADLINE_S:.0f}s")
    (pod,) = cluster.get("pods", *where, "-l", OXIDE)["items"]
    assert not pod["spec"].get("hostNetwork") and pod["status"]["podIP"] != pod["status"]["hostIP"]
    assert cluster.get("networkpolicy", "rack-oxide-cloud-controller-manager", *where)["spec"]["ingress"]
    refused = cluster.kubectl.attempt("run", "other", *where, "--image=bedplate/tool", "--privileged")
    assert refused.returncode == 1 and "violates PodSecurity" in refused.stderr, "it is enforced"
    reader.run("helm uninstall rack --namespace managers --wait")
    cluster.kubectl("delete", "namespace", "managers", "--wait=false")


def test_the_manager_of_nvidia_bmm_runs_from_deploy_as_its_document_says(
    reader: Reader, released: str, cluster: Cluster, clouds: Clouds
) -> None:
    cluster.kubectl("label", "node", "bmm-001", "bmm-002", "node-role.kubernetes.io/control-plane=")
    # "Put your values into a copy of …"
    (reader.folder / "config" / "cloud-config.yaml").write_text(bmm_config(clouds.bmm))
    reader.through("deploy-nvidia-bmm.md", "make deploy")
    for node in ("bmm-001", "bmm-002"):
        cluster.until(f"{node} is initialised", lambda node=node: not cluster.is_tainted(node), BMM)
        found = cluster.get("node", node)
        assert found["spec"]["providerID"].startswith(f"nvidia-bmm://{clouds.bmm.org}/{clouds.bmm.tenant_id}/")
        zone = found["metadata"]["labels"]["topology.kubernetes.io/zone"]
        assert zone == f"nvidia-bmm-zone-{clouds.bmm.site_id}"
        assert {"type": "InternalIP", "address": NODES[node]} in found["status"]["addresses"]
    assert images_of(cluster, BMM) == {released}
    (pod,) = cluster.until("the pod is ready", lambda: cluster.ready_pods(BMM), BMM)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert cluster.kubectl("logs", "-n", "kube-system", "-l", BMM)
    account = "--as=system:serviceaccount:kube-system:cloud-controller-manager"
    assert cluster.kubectl("auth", "can-i", "list", "nodes", account).strip() == "yes"
    writes = ("auth", "can-i", "--list", account)
    assert not re.search(r"^(nodes|services).*\b(patch|update|delete)\b", cluster.kubectl(*writes), re.MULTILINE)


def test_two_replicas_share_the_work_and_the_second_takes_over(reader: Reader, released: str, cluster: Cluster) -> None:
    lease = ("lease", "nvidia-bmm-cloud-controller-manager", "-n", "kube-system")
    reader.through("deploy-nvidia-bmm.md", "kubectl apply -k deploy/overlays/high-availability")
    deployment = "deployment/nvidia-bmm-cloud-controller-manager"
    cluster.kubectl("rollout", "status", "-n", "kube-system", deployment, f"--timeout={DEADLINE_S:.0f}s")

    def are_two() -> Any:
        """Both are of this overlay: none that they replace is left."""
        return len(cluster.pods(BMM)) == 2 and len(found := cluster.ready_pods(BMM)) == 2 and found

    pods = cluster.until("two pods are ready", are_two, BMM)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"bmm-001", "bmm-002"}
    holder = cluster.until("one leads", lambda: cluster.get(*lease)["spec"].get("holderIdentity"), BMM)
    leader = holder.split("_")[0]
    (name,) = [pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == leader]
    cluster.kubectl("delete", "pod", name, "-n", "kube-system", "--wait=false")

    def is_other() -> bool:
        return cluster.get(*lease)["spec"].get("holderIdentity", holder) not in ("", holder)

    cluster.until("another one leads", is_other, BMM)


def test_one_manager_serves_both_clouds(reader: Reader, released: str, cluster: Cluster) -> None:
    # The overlay for two clouds needs the other cloud's Secret.
    literals = {"oxide-host": "OXIDE_HOST", "oxide-token": "OXIDE_TOKEN", "oxide-project": "OXIDE_PROJECT"}
    words = [f"--from-literal={key}={reader.environ[name]}" for key, name in literals.items()]
    cluster.kubectl("delete", "secret", "oxide-cloud-controller-manager", "-n", "kube-system", "--ignore-not-found")
    cluster.kubectl("create", "secret", "generic", "oxide-cloud-controller-manager", "-n", "kube-system", *words)
    # A node that kubelets of a new machine would register: tainted, without a provider ID.
    for name in ("bmm-001", "oxide-001"):
        cluster.kubectl("label", "node", name, "topology.kubernetes.io/zone-", "node.kubernetes.io/instance-type-")
    reader.through("deploy-nvidia-bmm.md", "kubectl apply -k deploy/overlays/mixed")
    lease = ("lease", "nvidia-bmm-cloud-controller-manager", "-n", "kube-system")
    cluster.until("it is rolled out", lambda: len(cluster.ready_pods(BMM)) == 1 and len(cluster.pods(BMM)) == 1, BMM)
    # The manager before it gave the Lease back when it ended.
    cluster.until("it leads", lambda: cluster.get(*lease)["spec"].get("holderIdentity"), BMM)

    def has_type(node: str) -> bool:
        return "node.kubernetes.io/instance-type" in cluster.get("node", node)["metadata"]["labels"]

    for node in ("bmm-001", "oxide-001"):
        cluster.until(f"{node} has its labels again", lambda node=node: has_type(node), BMM)
    assert images_of(cluster, BMM) == {released}


def test_the_rest_of_the_guide_for_nvidia_bmm_works_and_the_readers_secret_stays(
    reader: Reader, released: str, cluster: Cluster
) -> None:
    reader.through("deploy-nvidia-bmm.md", "make undeploy")
    kept = cluster.get("secret", "nvidia-bmm-cloud-config", "-n", "kube-system")
    assert "bedplate.dev/made-by" not in kept["metadata"].get("annotations", {})
    reader.rest("deploy-nvidia-bmm.md")


def test_the_guide_for_cloudlycke_works(reader: Reader, released: str, cluster: Cluster) -> None:
    """After the others, whose managers want the same port of the machines."""
    reader.skip_to("deploy-cloudlycke.md", "make deploy ")
    assert "successfully rolled out" in reader.through("deploy-cloudlycke.md", "kubectl rollout status ")
    assert images_of(cluster, CLOUDLYCKE) == {released}
    assert "manager.starting" in cluster.kubectl("logs", "-n", "kube-system", "-l", CLOUDLYCKE, "--tail=-1")
    reader.rest("deploy-cloudlycke.md")


# Address management


@pytest.fixture(scope="module")
def attaching(machines: Overlaid) -> Overlaid:
    """The nodes with a stand-in for Multus, the labels of the guide's pool, and no taint of a cloud."""
    machines.attempt("taint", "nodes", "--all", "node.cloudprovider.kubernetes.io/uninitialized-")
    for node in NODES:
        _install_attach(machines, node)
    machines.apply(definition("NetworkAttachmentDefinition", "network-attachment-definitions", "k8s.cni.cncf.io"))
    machines.kubectl(
        "wait", "--for=condition=Established", "--timeout=120s", "crd/network-attachment-definitions.k8s.cni.cncf.io"
    )
    machines.apply(attachment("flat", {"type": "nv-ipam", "poolName": "my-pool"}))
    # The guide's pool is for nodes with this label.
    machines.kubectl("label", "node", *NODES, "kubernetes.io/role=worker")
    return machines


def have_blocks(machines: Overlaid) -> Any:
    blocks = machines.blocks("my-pool")
    return set(blocks) == set(NODES) and blocks


@pytest.fixture(scope="module")
def original(reader: Reader, released: str, lab: Lab, folder: Path) -> list[dict[str, Any]]:
    """The original's workloads; its image is on the nodes."""
    lab.command("load-image", str(original_archive(folder)))
    return original_workloads(reader.run("kubectl kustomize deploy/overlays/no-webhook"))


def test_the_guide_replaces_a_running_original_without_a_failed_add(
    attaching: Overlaid, reader: Reader, released: str, cluster: Cluster, original: list[dict[str, Any]]
) -> None:
    page = "migrate-from-nv-ipam.md"
    attaching.apply(*original)
    attaching.roll_out()
    reader.run("kubectl apply -f docs/guides/ipam-pools.yaml")
    blocks = attaching.until("every node has a block", lambda: have_blocks(attaching))
    lasting = {node: attaching.attach(f"lasting-{node}", "flat", node) for node in NODES}
    held = {node: attaching.reservations(node) for node in NODES}
    reader.pages[page] = 0
    with Visitors(attaching, tuple(NODES)) as visitors:
        attaching.until("visitors come and go", lambda: min(visitors.counts.values()) >= 1)
        start = dict(visitors.counts)
        # The page, from its first command (the check of the image) to the last one before its way back.
        reader.through(page, "bedplate doctor ipam ")
        attaching.roll_out()
        before = dict(visitors.counts)
        assert all(before[node] > start[node] for node in NODES), "pods came and went while it was replaced"
        attaching.until(
            "visitors come and go after it",
            lambda: all(visitors.counts[node] >= before[node] + 2 for node in NODES),
        )
    assert visitors.failures == []
    assert visitors.refusals() == []
    # Controllers that were replaced may take a while to end.
    cluster.until("only ours run", lambda: images_of(cluster, IPAM) == {released}, IPAM)
    told = json.loads(reader.attempt("bedplate doctor ipam -o json").stdout)["findings"]
    assert [one for one in told if one["check"] == "daemons" and one["level"] != "ok"] == []
    assert attaching.blocks("my-pool") == blocks, "no block has moved"
    for node, pod in lasting.items():
        (link,) = attaching.links(named(pod))
        assert link["ips"][0] in {each["ip_address"] for each in held[node]}
        assert link["ips"][0] in {each["ip_address"] for each in attaching.reservations(node)}
    attaching.kubectl("delete", "pod", "--all", "--wait=true", "--timeout=300s")


def test_the_guide_leads_back_to_the_original(
    attaching: Overlaid, reader: Reader, cluster: Cluster, original: list[dict[str, Any]]
) -> None:
    node = next(iter(NODES))
    lasting = attaching.attach("stays", "flat", node)
    reader.rest("migrate-from-nv-ipam.md")
    attaching.apply(*original)
    attaching.roll_out()
    cluster.until("only the original runs", lambda: images_of(cluster, IPAM) == {ORIGINAL}, IPAM)
    attaching.attach("comes", "flat", node)
    # It knows what ours has written, and writes the same file.
    (link,) = attaching.links(named(lasting))
    names = {each["ip_address"]: each["metadata"]["pod_name"] for each in attaching.reservations(node)}
    assert names[link["ips"][0]] == "stays" and "comes" in names.values()
    attaching.kubectl("delete", "clusterrolebinding", "original-ipam")
    attaching.kubectl("delete", "pod", "--all", "--wait=true", "--timeout=300s")


def test_the_guide_installs_address_management_and_pods_on_three_nodes_get_addresses(
    attaching: Overlaid, reader: Reader, released: str, cluster: Cluster
) -> None:
    reader.through("ipam.md", "kubectl kustomize deploy/overlays/no-webhook | kubectl apply")
    attaching.roll_out()
    cluster.until("only ours run", lambda: images_of(cluster, IPAM) == {released}, IPAM)
    reader.through("ipam.md", "kubectl get crd ")
    # Between them is the command for another overlay.
    reader.skip_to("ipam.md", "kubectl apply -f docs/guides/ipam-pools.yaml")
    reader.through("ipam.md", "bedplate ipam map")
    blocks = attaching.until("every node has a block", lambda: have_blocks(attaching))
    for node in NODES:
        attaching.attach(f"guided-{node}", "flat", node)
        (link,) = attaching.links(f"guided-{node}")
        assert link["ips"][0] in blocks[node]
    reader.rest("ipam.md")
