"""Corners of kubectl: the same on both servers where both can answer, a clear refusal where only a node could."""

from __future__ import annotations

import json
import pathlib
import subprocess
import urllib.request
from collections.abc import Callable

import pytest
from tests import servers
from tests.endurance import running
from tests.peers import programs
from tests.scripts import shell
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.external

OnBoth = Callable[[pathlib.Path, shell.Script], shell.Transcript]


def configmap(name: str, value: str = "b", label: str = "set") -> str:
    metadata = {"name": name, "labels": {"pruned": label}}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": value}})


def test_watching(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(k: shell.Shell) -> None:
        k("apply -f -", configmap("a"))
        k.follow("get cm a --watch", 3, ["annotate cm a x=y", "label cm a z=w"])
        k.follow("get cm a -w -o name", 2, ["annotate cm a x2=y"])
        k.follow("get cm -l pruned=set -w --output-watch-events", 3, ["create cm other", "delete cm a"])

    on_both(kubectl, script)


def test_watching_as_json(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(k: shell.Shell) -> None:
        k("apply -f -", configmap("a"))
        k.follow('get cm a -w -o jsonpath={.metadata.annotations.x}{"\\n"}', 2, ["annotate cm a x=y"])

    on_both(kubectl, script)


def test_chunks_prune_and_delete_all(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(k: shell.Shell) -> None:
        many = "\n---\n".join(configmap(f"c-{number:02}") for number in range(25))
        k("apply -f -", many)
        k("get cm -l pruned=set --chunk-size=3 -o name")
        k("get cm -l pruned=set --chunk-size=7")
        few = "\n---\n".join(configmap(f"c-{number:02}") for number in range(3))
        allowed = "--prune-allowlist=core/v1/ConfigMap"
        k(f"apply -f - --prune -l pruned=set {allowed}", few)
        k("get cm -l pruned=set -o name")
        k("delete cm -l pruned=set")
        k("get cm -l pruned=set -o name")
        k("create secret generic s1")
        k("create secret generic s2")
        k.fails("delete secret --all -l a=b")
        k("delete secret --all")
        k("get secret")

    on_both(kubectl, script)


def test_replace(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(k: shell.Shell) -> None:
        k("create -f -", configmap("r"))
        k("replace -f -", configmap("r", "c"))
        k("get cm r -o jsonpath={.data.a}")
        uid = k.unlike("get cm r -o jsonpath={.metadata.uid}")
        k("replace --force -f -", configmap("r", "d"))
        assert k.unlike("get cm r -o jsonpath={.metadata.uid}") != uid
        k.fails("replace -f -", configmap("never"))
        k.fails("create -f -", configmap("r"))
        k("apply -f - --force-conflicts --server-side", configmap("r", "e"))

    on_both(kubectl, script)


def test_raw_and_tokens(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(k: shell.Shell) -> None:
        k("get --raw /healthz")
        k("get --raw /readyz/ping")
        k("get --raw /livez/ping")
        k.fails("get --raw /nothing")
        k.fails("get --raw /api/v1/nothing")
        token = k.unlike("create token default --duration=10m").strip()
        assert token.count(".") == 2
        k.fails("create token default --duration=5m")
        k.fails("create token nobody")

    on_both(kubectl, script)


def test_events(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "ConfigMap", "name": "a", "apiVersion": "v1"},
        "reason": "Seen",
        "message": "it was seen",
        "type": "Normal",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 3,
    }

    def script(k: shell.Shell) -> None:
        event["metadata"] = {"name": "e", "namespace": k.namespace}
        event["involvedObject"]["namespace"] = k.namespace  # type: ignore[index]
        k("create -f -", json.dumps(event))
        k("events --for cm/a")
        k("events --types=Warning")
        k("get events -o custom-columns=REASON:.reason,COUNT:.count")

    on_both(kubectl, script)


def test_certificates(kubectl: pathlib.Path, on_both: OnBoth, tmp_path: pathlib.Path) -> None:
    key, request = tmp_path / "key", tmp_path / "request"
    command = ["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(request)]
    subprocess.run([*command, "-subj", "/CN=alice/O=dev"], check=True, capture_output=True)
    import base64

    encoded = base64.b64encode(request.read_bytes()).decode()

    def document(name: str) -> str:
        usages, signer = ["client auth"], "example.com/nobody"
        spec = {"request": encoded, "signerName": signer, "usages": usages, "username": "mallory"}
        meta = {"name": name}
        return json.dumps(
            {
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": meta,
                "spec": spec,
            }
        )

    def script(k: shell.Shell) -> None:
        yes, no = f"{k.namespace}-yes", f"{k.namespace}-no"
        for name in (yes, no):
            k("create -f -", document(name))
        assert k.unlike(f"get csr {yes} -o jsonpath={{.spec.username}}") in ("admin", "kubernetes-admin")
        k(f"certificate approve {yes}")
        k(f"certificate deny {no}")
        k(f"get csr {yes} {no} -o jsonpath={{..conditions[*].type}}{{..conditions[*].status}}")
        k.fails(f"certificate approve {no}")
        k(f"delete csr {yes} {no}")

    on_both(kubectl, script)


def test_ephemeral_containers_are_recorded(kubectl: pathlib.Path, on_both: OnBoth) -> None:
    def script(k: shell.Shell) -> None:
        k("run p --image=i")
        k("debug p --image=tool --container=dbg --attach=false -q --profile=general")
        k("get pod p -o jsonpath={.spec.ephemeralContainers[*].name}{.spec.ephemeralContainers[*].image}")

    on_both(kubectl, script)


@pytest.fixture
def busy(server: running.Embedded, tmp_path: pathlib.Path) -> programs.Kubectl:
    """kubectl with a pod that claims to run, on a node."""
    run = programs.Kubectl(server.kubeconfig, tmp_path)
    programs.until(lambda: run.run("get", "sa", "default").returncode == 0, "a default account")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }
    run("apply", "-f", "-", stdin=f"{json.dumps(node)}\n---\n{json.dumps(pod)}")
    state = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    run("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", json.dumps(state))
    return run


REFUSED = [
    (("logs", "p"), "pods/log needs a node"),
    (("exec", "p", "--", "true"), "pods/exec needs a node"),
    (("attach", "p"), "pods/attach needs a node"),
    (("port-forward", "p", ":80"), "pods/portforward needs a node"),
    (("get", "--raw", "/api/v1/nodes/n/proxy/stats"), "nodes/proxy needs a node"),
    (("top", "nodes"), "Metrics API not available"),
    (("top", "pods"), "Metrics API not available"),
]


@pytest.mark.parametrize(("command", "words"), REFUSED)
def test_what_only_a_node_can_do_is_refused_in_words(
    busy: programs.Kubectl, command: tuple[str, ...], words: str
) -> None:
    done = busy.run(*command)
    assert done.returncode != 0
    assert words in done.stderr, done.stderr


def test_cluster_info_dump(busy: programs.Kubectl, tmp_path: pathlib.Path) -> None:
    busy("cluster-info", "dump", f"--output-directory={tmp_path / 'dump'}", "--all-namespaces")
    pods = json.loads((tmp_path / "dump" / "default" / "pods.json").read_text())
    assert [pod["metadata"]["name"] for pod in pods["items"]] == ["p"]


def test_proxy(server: running.Embedded, tmp_path: pathlib.Path) -> None:
    kubectl, port = programs.Kubectl(server.kubeconfig, tmp_path), servers.free_port()
    command = (str(kubectl.path), "proxy", f"--port={port}")
    with programs.background(tmp_path / "log", *command, env={"KUBECONFIG": str(server.kubeconfig)}):

        def answers() -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/namespaces", timeout=10) as answer:
                    return bool(json.load(answer)["kind"] == "NamespaceList")
            except OSError:
                return False

        programs.until(answers, "an answer through the proxy", tmp_path / "log")
        watch = f"http://127.0.0.1:{port}/api/v1/namespaces?watch=1"
        # The stream is never closed by the server here: the event must have come through while it is open.
        with urllib.request.urlopen(watch, timeout=DEADLINE_S) as stream:
            assert json.loads(stream.readline())["type"] == "ADDED"
