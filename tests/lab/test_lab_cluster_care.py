"""The care for a running cluster, on a managed lab: certificates, snapshots of etcd and their restore, a report.

The tests follow one another on one cluster of three control plane nodes, which are the members of etcd as well; the
last one makes a cluster with a single member.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.lab.test_lab_managed import Site
from tests.lab.test_lab_setup import NODES, Lab, answers_file
from tests.waiting import wait_until

from bedplate.lab import binaries, managed, packages

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]

PKI = "/etc/kubernetes/pki/default"


@pytest.fixture(scope="module")
def lab(new_lab: Callable[..., Any], look: Callable[..., Any]) -> Iterator[Lab]:
    binaries.ensure((*packages.TAKEN, *managed.IMAGED), progress=print)
    made = new_lab("c")
    before = look(made.name, made.state)
    site = Site(made, made.ok("up", "--managed", "--nodes", "3").strip())
    lab = Lab(site, {}, {}, "", before)
    every = {"nodes": list(NODES)}
    file = answers_file(site.folder, nodes={"masters": every, "workers": every})
    assert "status: completed" in lab.setup("-c", str(file), "--on-error-action", "abort")
    yield lab
    made.run("down")


class Taken(NamedTuple):
    """A snapshot of a cluster with the ConfigMap `before`, and what the tool said of it."""

    file: Path
    said: str


@pytest.fixture(scope="module")
def taken(lab: Lab) -> Taken:
    _write(lab, "before")
    file = lab.site.folder / "etcd.db"
    return Taken(file, lab.setup("--etcd-snapshot", str(file)))


def _names(lab: Lab) -> set[str]:
    return {item["metadata"]["name"] for item in lab.get("configmaps")["items"]} - {"kube-root-ca.crt"}


def _write(lab: Lab, name: str) -> None:
    lab.kubectl("create", "configmap", name, "--from-literal=a=b")


def _is_ready(lab: Lab) -> bool:
    conditions = [each for item in lab.get("nodes")["items"] for each in item["status"]["conditions"]]
    return [each["status"] for each in conditions if each["type"] == "Ready"] == ["True"] * len(NODES)


def _serial(lab: Lab, node: str, path: str) -> str:
    return lab.site.on(node, "openssl", "x509", "-in", path, "-noout", "-serial").strip()


@pytest.mark.soak
def test_item_155_other_trusted_domains_are_in_what_api_servers_show_without_a_restart(lab: Lab) -> None:
    pods = {item["metadata"]["uid"] for item in lab.get("pods", "-n", "kube-system")["items"]}
    lab.site.cmsh("kubernetes use default", "append trusteddomains api.elsewhere.example", "commit --wait")

    def shown(node: str) -> str:
        line = "openssl s_client -connect 127.0.0.1:6443 </dev/null 2>/dev/null | openssl x509 -noout -text"
        return lab.site.on(node, "sh", "-c", line)

    for node in NODES:
        wait_until(lambda node=node: "DNS:api.elsewhere.example" in shown(node), f"the name on {node}", step_s=0.5)
    first = lab.site.cmsh("kubernetes use default", "get trusteddomains").split()[0]
    assert f"DNS:{first}" in shown("node001")
    # Mirror pods of a new cluster may still come; none that was there has been replaced.
    assert pods <= {item["metadata"]["uid"] for item in lab.get("pods", "-n", "kube-system")["items"]}


@pytest.mark.soak
def test_item_180_certificates_are_shown_and_renewed_while_clients_go_on(lab: Lab) -> None:
    rows = [json.loads(line) for line in lab.setup("--certificates", "--json", code=0).splitlines()]
    assert {row["node"] for row in rows} == set(NODES)
    assert f"{PKI}/apiserver-kubelet-client.crt" in {row["path"] for row in rows}
    assert all(re.match(r"20\d\d-\d\d-\d\dT", row["ends"]) for row in rows), rows
    before = {node: _serial(lab, node, f"{PKI}/apiserver-kubelet-client.crt") for node in NODES}
    served = {node: _serial(lab, node, f"{PKI}/apiserver.crt") for node in NODES}
    asks = "kubectl --kubeconfig=/tmp/kubeconfig get --raw=/version >/dev/null || echo lost"
    assert lab.kubectl("get", "--raw=/readyz", node="node002") == "ok"
    client = lab.site.start("node002", "sh", "-c", f"until [ -e /tmp/enough ]; do {asks}; sleep 0.2; done; echo over")
    try:
        said = lab.setup("--renew-certificates")
    finally:
        lab.site.on("node002", "touch", "/tmp/enough")
    assert said.count("renewed 6 certificates") == len(NODES)
    assert client.communicate(timeout=120)[0].split() == ["over"]
    for node in NODES:
        assert _serial(lab, node, f"{PKI}/apiserver-kubelet-client.crt") != before[node]
        assert _serial(lab, node, f"{PKI}/apiserver.crt") == served[node], "the head's own certificate stays"
    # Who read its certificate once has read the new one: what it does still happens.
    lab.kubectl("create", "deployment", "after", "--image=busybox", "--", "sleep", "3600")
    wait_until(lambda: lab.get("deployment", "after")["status"].get("readyReplicas") == 1, "a new pod", step_s=0.5)

    def is_passed() -> bool:
        return re.search(r"KubernetesCertificates\s+PASS", lab.site.cmsh("device health node001")) is not None

    wait_until(is_passed, "the check knows the certificates", step_s=1)


def test_item_181_a_snapshot_is_checked_listed_and_copied(lab: Lab, taken: Taken, tmp_path: Path) -> None:
    file = taken.file
    assert re.search(r"revision \d+, \d+ keys, hash [0-9a-f]{8}", taken.said), taken.said
    assert file.stat().st_mode & 0o777 == 0o600
    listed = lab.setup("--etcd-snapshots").splitlines()
    assert len(listed) == 1 and "on node001" in listed[0]
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(file.read_bytes()[:-600] + bytes(600))
    said = lab.setup("--etcd-restore", str(damaged), "--yes-i-really-mean-it", code=2)
    assert "damaged" in said or "not a snapshot" in said
    assert "--yes-i-really-mean-it" in lab.setup("--etcd-restore", str(file), code=2)
    assert lab.kubectl("get", "--raw=/readyz") == "ok"


@pytest.mark.soak
def test_item_181_a_restore_that_fails_leaves_the_data_as_it_is(lab: Lab, taken: Taken) -> None:
    _write(lab, "meanwhile")
    # A member whose snapshot cannot be unpacked: its program is away.
    lab.site.on("node003", "mv", "/usr/bin/etcdutl", "/usr/bin/etcdutl.away")
    try:
        said = lab.setup("--etcd-restore", str(taken.file), "--yes-i-really-mean-it", code=1)
    finally:
        lab.site.on("node003", "mv", "/usr/bin/etcdutl.away", "/usr/bin/etcdutl")
    assert "status: undone" in said
    assert {"before", "meanwhile"} <= _names(lab)


def test_item_181_a_restore_of_three_members_brings_back_what_was_there(lab: Lab, taken: Taken) -> None:
    _write(lab, "after")
    said = lab.setup("--etcd-restore", str(taken.file), "--yes-i-really-mean-it")
    assert "status: completed" in said
    wait_until(lambda: _names(lab) == {"before"}, "the restored objects", step_s=0.5)
    assert lab.site.is_healthy("node001", 3)
    for node in NODES:
        assert lab.site.tries(node, "test", "-e", "/var/lib/etcd/member.before-restore/wal") == 0
        assert lab.site.tries(node, "test", "-e", "/var/lib/etcd/restore") != 0
    wait_until(lambda: _is_ready(lab), "all nodes are Ready", step_s=0.5)
    lab.kubectl("create", "deployment", "restored", "--image=busybox", "--", "sleep", "3600")
    wait_until(lambda: lab.get("deployment", "restored")["status"].get("readyReplicas") == 1, "a new pod", step_s=0.5)


@pytest.mark.soak
def test_item_181_a_restore_that_was_killed_keeps_others_out_until_it_is_taken_back(lab: Lab, taken: Taken) -> None:
    _write(lab, "later")
    words = ("--etcd-restore", str(taken.file), "--yes-i-really-mean-it")
    lab.kill_at("Replace Etcd Data", *words)
    assert "an earlier restore of the cluster default did not finish" in lab.setup(*words, code=None)
    assert "is being restored or upgraded" in lab.site.cmsh(
        "configurationoverlay use kube-default-etcd", "set nodes node001,node002", "commit", code=1
    )
    assert "node_lifecycle: paused" in lab.tree_of_head()
    assert "status: undone" in lab.setup("--undo", code=None)
    wait_until(lambda: _answers(lab), "the API servers are back", step_s=0.5)
    wait_until(lambda: "later" in _names(lab), "nothing is lost", step_s=0.5)
    assert lab.site.is_healthy("node001", 3)
    assert "node_lifecycle: managed" in lab.tree_of_head()


@pytest.mark.soak
def test_item_221_the_report_has_it_all_without_secrets_and_also_without_an_api_server(lab: Lab) -> None:
    wait_until(lambda: _answers(lab), "the API servers are back", step_s=0.5)
    archive = lab.site.folder / "report.tar.gz"
    code, text = _diagnose(lab, "--archive", str(archive))
    assert code in (0, 1), text
    for words in (
        "== Agents",
        "== Node node003",
        "certificate /etc/kubernetes/pki/default/",
        "version etcd etcd Version",
        "manifest kube-apiserver.yaml",
        "log etcd ",
        "== Pods",
        "== Events",
        "v1.35",
        "readyz check passed",
    ):
        assert words in text, words
    key = lab.site.on("node001", "cat", f"{PKI}/sa.key").splitlines()[1]
    token = re.search(r'"token": "([0-9a-z.]+)"', lab.site.on("node001", "cat", "/etc/kubernetes/kubeadm-init.yaml"))
    assert token is not None
    with tarfile.open(archive) as opened:
        whole = b"".join(content.read() for name in opened.getnames() if (content := opened.extractfile(name)))
    assert key.encode() not in whole and token[1].encode() not in whole
    moved = "/etc/kubernetes/manifests/kube-apiserver.yaml"
    for node in NODES:
        lab.site.on(node, "mv", moved, "/etc/kubernetes/away.yaml")
    try:
        wait_until(lambda: _diagnose(lab)[0] == 1, "the API servers are away", step_s=0.5)
        code, said = _diagnose(lab, "-o", "json")
    finally:
        for node in NODES:
            lab.site.on(node, "mv", "/etc/kubernetes/away.yaml", moved)
    report = json.loads(said)
    assert code == 1 and "API server" in report["notRead"], report["notRead"]
    assert {f"Node {node}" for node in NODES} <= set(report["sections"])
    assert "the API server does not answer" in report["findings"]
    wait_until(
        lambda: lab.site.tries("node001", "sh", "-c", "curl -sk https://127.0.0.1:6443/livez") == 0, "it is back"
    )


def _answers(lab: Lab) -> bool:
    """Whether the API answers through the proxy; servers that have just started do not, for a while."""
    try:
        return lab.kubectl("get", "--raw", "/readyz") == "ok"
    except AssertionError:
        return False


def _diagnose(lab: Lab, *words: str) -> tuple[int, str]:
    line = [sys.executable, "-m", "bedplate.apps.kubediagnose", "--data", str(lab.site.data), *words]
    result = subprocess.run(line, env=lab.site.lab.environ, capture_output=True, text=True, timeout=240, check=False)
    return result.returncode, result.stdout or result.stderr


@pytest.mark.soak
def test_item_181_a_cluster_with_one_member_is_restored_too(lab: Lab, taken: Taken) -> None:
    lab.setup("--remove", "--cluster", "default", "--yes-i-really-mean-it", "--on-error-action", "abort")
    for node in NODES:
        assert lab.site.tries(node, "test", "-e", "/var/lib/etcd") != 0, "what a restore kept goes with the member"
    one = {"masters": {"nodes": ["node001"]}, "workers": {"nodes": ["node001"]}}
    lab.setup("-c", str(answers_file(lab.site.folder, nodes=one)), "--on-error-action", "abort")
    said = lab.setup("--etcd-restore", str(taken.file), "--yes-i-really-mean-it", code=2)
    assert "is a snapshot of another cluster" in said, "a cluster that was made again is another one"
    assert "--accept-other-authority" in said
    _write(lab, "before")
    lab.setup("--etcd-snapshot")
    _write(lab, "after")
    name = lab.setup("--etcd-snapshots").splitlines()[-1].split()[0]
    assert "status: completed" in lab.setup("--etcd-restore", name, "--yes-i-really-mean-it")
    wait_until(lambda: _names(lab) == {"before"}, "the restored objects", step_s=0.5)
    _write(lab, "again")


@pytest.mark.soak
def test_item_181_data_of_a_cluster_goes_into_the_one_that_was_made_in_its_place(lab: Lab, taken: Taken) -> None:
    authority = lab.site.on("node001", "cat", f"{PKI}/ca.crt").strip()
    words = ("--etcd-restore", str(taken.file), "--yes-i-really-mean-it", "--accept-other-authority")
    said = lab.setup(*words)
    assert "status: completed" in said and "the snapshot has another authority" in said
    assert "node002 is in the snapshot and has left the cluster since" in said
    wait_until(lambda: _names(lab) == {"before"}, "the restored objects", step_s=0.5)

    def told() -> str:
        return str(lab.get("configmap", "kube-root-ca.crt", "-n", "default")["data"]["ca.crt"]).strip()

    wait_until(lambda: told() == authority, "pods are told the authority of the cluster", step_s=0.5)
    info = lab.get("configmap", "cluster-info", "-n", "kube-public")["data"]["kubeconfig"]
    assert base64.b64encode(f"{authority}\n".encode()).decode() in info, "nodes that join are told it as well"
    for node in NODES[1:]:
        lab.kubectl("delete", "node", node)
    lab.kubectl("create", "deployment", "here", "--image=busybox", "--", "sleep", "3600")
    wait_until(lambda: lab.get("deployment", "here")["status"].get("readyReplicas") == 1, "a new pod", step_s=0.5)
    said = lab.setup("--add-nodes", "node002", "--on-error-action", "abort")
    assert "status: completed" in said, "a node joins with the authority that it is told"


@pytest.mark.soak
def test_item_165_the_api_answers_outside_where_the_firewall_has_its_row_and_not_otherwise(lab: Lab) -> None:
    outside = {"node001": "198.51.100.1", "node003": "198.51.100.3"}
    for node, address in outside.items():
        lab.site.on(node, "ip", "address", "add", f"{address}/24", "dev", "eth0")

    def answers() -> bool:
        line = ("curl", "-sk", "--max-time", "3", "--interface", outside["node003"], "-o", "/dev/null")
        return lab.site.tries("node003", *line, f"https://{outside['node001']}:10443/version") == 0

    wait_until(answers, "without a firewall nothing is closed", step_s=0.5)
    firewall = ("device use node001", "roles")
    lab.site.cmsh(*firewall, "assign firewall", "set backend nftables", "/", "commit --wait")
    assert not answers()
    lab.site.cmsh(*firewall, "use firewall", "openports", "add ACCEPT net 10443 tcp fw", "/", "commit --wait")
    wait_until(answers, "the row lets it in", step_s=0.5)
