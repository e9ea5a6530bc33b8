"""`make deploy` and `make undeploy`, with a kubectl that only remembers and on API servers: Secrets are the
administrator's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import programs, servers
from tests.deploy.conftest import IMAGE, ROOT, Program, load_tool, run_tool

from bedplate.core import errors

deploy = load_tool("deploy")
OWN = "127.0.0.1:5000/bedplate:mine"
NAME = "nvidia-bmm-cloud-config"

# Objects are files KIND.NAME below a folder; the rest of what kubectl does is not needed here.
KUBECTL = """
import json, os, pathlib, sys
import yaml
world, words = pathlib.Path(os.environ["WORLD"]), sys.argv[1:]
given = sys.stdin.read() if "-" in words else ""
with (world / "calls").open("a") as calls:
    calls.write(json.dumps([words, given]) + "\\n")
if (world / "down").exists():
    sys.exit("Unable to connect to the server")
def file(document):
    return world / f"{document['kind'].lower()}.{document['metadata']['name'].replace(':', '_')}"
def documents():
    return [each for each in yaml.safe_load_all(given) if each]
if words[0] == "get" and words[1] == "secret":
    found = world / f"secret.{words[2]}"
    print(found.read_text() if found.exists() else "", end="")
elif words[0] == "get":
    print((world / words[1]).read_text())
elif words[0] == "create":
    for each in documents():
        if file(each).exists():
            sys.exit("Error from server (AlreadyExists)")
        each["metadata"]["uid"] = "made"
        file(each).write_text(json.dumps(each))
elif words[0] == "apply":
    for each in documents():
        file(each).write_text(json.dumps(each))
elif words[0] == "delete" and words[1].startswith("--raw="):
    (world / f"secret.{words[1].rpartition('/')[2]}").unlink()
elif words[0] == "delete" and words[1] == "daemonset":
    (world / f"daemonset.{words[2]}").unlink(missing_ok=True)
elif words[0] == "delete":
    for each in documents():
        file(each).unlink(missing_ok=True)
"""


class World:
    """A cluster in a folder, and the tool that is pointed at it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "world"
        self.folder.mkdir()
        self._program = folder / "kubectl.py"
        self._program.write_text(KUBECTL)
        self.command = f"{sys.executable} {self._program}"

    def run(self, what: str, *words: str) -> subprocess.CompletedProcess[str]:
        return run_tool("deploy.py", what, *words, "--kubectl", self.command, env={"WORLD": str(self.folder)})

    def calls(self) -> list[tuple[list[str], str]]:
        file = self.folder / "calls"
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    def objects(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} - {"calls", "down", "nodes", "pods"}

    def put(self, secret: dict[str, Any]) -> None:
        (self.folder / f"secret.{secret['metadata']['name']}").write_text(json.dumps(secret))

    def secret(self) -> Any:
        return json.loads((self.folder / f"secret.{NAME}").read_text())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def own_secret() -> dict[str, Any]:
    meta = {"name": NAME, "namespace": "kube-system", "uid": "theirs"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"cloud-config": "bWluZQ=="}}


def filled_checkout(folder: Path) -> Path:
    """The files of NVIDIA BMM with a token in place of the placeholder."""
    root = folder / "checkout"
    for each in ("deploy/rbac", "deploy/manifests"):
        (root / each).mkdir(parents=True)
        for path in (ROOT / each).glob("*.yaml"):
            text = path.read_text().replace("your-api-token", "a-token-of-ours")
            (root / each / path.name).write_text(text)
    return root


def test_a_placeholder_is_refused_by_its_name_before_anything_is_applied(world: World) -> None:
    done = world.run("apply", "--provider", "nvidia-bmm", "--image", OWN)
    assert done.returncode != 0
    assert "placeholder 'your-api-token'" in done.stderr and "cloud-config-secret.yaml" in done.stderr
    assert "Traceback" not in done.stderr
    assert world.objects() == set()
    assert [words[0] for words, _ in world.calls()] == ["get"]


def test_an_existing_secret_is_left_as_it_is_by_deploy_and_by_undeploy(world: World) -> None:
    world.put(own_secret())
    done = world.run("apply", "--provider", "nvidia-bmm", "--image", OWN)
    assert done.returncode == 0, done.stderr
    assert "exists and is left as it is" in done.stdout
    assert world.secret() == own_secret()
    deployment = json.loads((world.folder / "deployment.nvidia-bmm-cloud-controller-manager").read_text())
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == OWN
    removed = world.run("delete", "--provider", "nvidia-bmm")
    assert removed.returncode == 0, removed.stderr
    assert "was not made by `make deploy` and stays" in removed.stdout
    assert world.objects() == {f"secret.{NAME}"} and world.secret() == own_secret()


def test_no_call_ever_applies_or_deletes_a_secret_by_its_manifest(world: World) -> None:
    world.put(own_secret())
    for words in (("apply", "--image", OWN), ("delete",)):
        assert world.run(words[0], "--provider", "nvidia-bmm", *words[1:]).returncode == 0
    for words, given in world.calls():
        kinds = [each["kind"] for each in yaml.safe_load_all(given) if each]
        assert words[0] == "create" or "Secret" not in kinds, words


def test_a_secret_that_deploy_made_is_removed_with_the_rest(world: World, tmp_path: Path) -> None:
    documents = [each for each in deploy.documents("nvidia-bmm") if each.is_secret]
    (secret,) = documents
    edited = secret.text.replace("your-api-token", "a-token-of-ours")
    filled = deploy.Document(secret.source, edited, yaml.safe_load(edited))
    assert deploy.placeholder(secret) == "your-api-token" and deploy.placeholder(filled) == ""
    root = filled_checkout(tmp_path)
    said: list[str] = []
    kubectl = deploy.Kubectl(f"env WORLD={world.folder} {world.command}")
    deploy.apply("nvidia-bmm", OWN, kubectl, said.append, root=root)
    assert world.secret()["metadata"]["annotations"] == {"bedplate.dev/made-by": "make-deploy"}
    assert "a-token-of-ours" in world.secret()["stringData"]["cloud-config"]
    # A second deploy finds it, and changes nothing about it.
    before = world.secret()
    deploy.apply("nvidia-bmm", OWN, kubectl, said.append, root=root)
    assert world.secret() == before
    deploy.delete("nvidia-bmm", kubectl, said.append, root=root)
    assert world.objects() == set()


def test_a_server_that_does_not_answer_is_not_a_cluster_without_a_secret(world: World) -> None:
    (world.folder / "down").touch()
    for what in ("apply", "delete"):
        done = world.run(what, "--provider", "nvidia-bmm")
        assert done.returncode != 0 and "Unable to connect" in done.stderr
        assert "placeholder" not in done.stderr


@pytest.mark.parametrize("provider", sorted(deploy.FILES))
def test_what_is_applied_names_the_image_and_no_other(world: World, provider: str) -> None:
    world.put(own_secret())
    assert world.run("apply", "--provider", provider, "--image", OWN).returncode == 0
    (applied,) = [given for words, given in world.calls() if words[0] == "apply"]
    assert OWN in applied and IMAGE not in applied


def test_the_managers_of_all_clouds_can_be_in_one_cluster() -> None:
    bound: dict[tuple[str, str, str], tuple[str, dict[str, Any]]] = {}
    for provider in deploy.FILES:
        for each in deploy.documents(provider):
            key = (each.content["kind"], each.namespace, each.name)
            assert key not in bound, f"{key} is in the manifests of {provider} and of {bound[key][0]}"
            bound[key] = (provider, each.content)


def test_all_managers_are_deployed_and_removed_on_a_server_and_a_secret_stays(
    server: servers.Server, kubectl: Program, tmp_path: Path
) -> None:
    """One after the other in one cluster, twice: no binding has the name of another one's."""
    command = deploy.Kubectl(f"env KUBECONFIG={server.kubeconfig} {programs.built('kubectl')}")
    said: list[str] = []
    kubectl("create", "secret", "generic", NAME, "-n", "kube-system", "--from-literal=cloud-config=mine")
    theirs = json.loads(kubectl("get", "secret", NAME, "-n", "kube-system", "-o", "json"))
    for provider in (*deploy.FILES, *deploy.FILES):
        deploy.apply(provider, OWN, command, said.append)
    for manager in ("", "oxide-", "cloudlycke-"):
        name = f"system:{manager}cloud-controller-manager"
        bound = json.loads(kubectl("get", "clusterrolebinding", name, "-o", "json"))
        assert bound["roleRef"]["name"] == name
    for provider in deploy.FILES:
        deploy.delete(provider, command, said.append)
    assert "cloud-controller-manager" not in kubectl("get", "clusterrolebinding,deployment", "-A", "-o", "name")
    assert json.loads(kubectl("get", "secret", NAME, "-n", "kube-system", "-o", "json")) == theirs
    # Without a Secret: a placeholder is refused, and one that was made is deleted again.
    kubectl("delete", "secret", NAME, "-n", "kube-system")
    with pytest.raises(errors.Invalid, match="your-api-token"):
        deploy.apply("nvidia-bmm", OWN, command, said.append)
    root = filled_checkout(tmp_path)
    deploy.apply("nvidia-bmm", OWN, command, said.append, root=root)
    made = json.loads(kubectl("get", "secret", NAME, "-n", "kube-system", "-o", "json"))
    assert made["metadata"]["annotations"] == {deploy.MADE: "make-deploy"}
    deploy.delete("nvidia-bmm", command, said.append, root=root)
    assert kubectl.attempt("get", "secret", NAME, "-n", "kube-system").returncode == 1


@pytest.mark.parametrize("provider", sorted(deploy.FILES))
def test_a_manifest_is_read_whole(provider: str) -> None:
    found = list(deploy.documents(provider))
    files = [
        path
        for name in deploy.FILES[provider]
        for path in ([ROOT / name] if name.endswith(".yaml") else sorted((ROOT / name).glob("*.yaml")))
    ]
    whole = [each for path in files for each in yaml.safe_load_all(path.read_text()) if each]
    assert [each.content for each in found] == whole


# Whether nodes can run the image


def node(name: str, *, is_ready: bool = True) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True" if is_ready else "Unknown"}
    return {"metadata": {"name": name}, "status": {"conditions": [condition]}}


def pod(where: str, reason: str = "", message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}} if reason else {"running": {}}
    return {"spec": {"nodeName": where}, "status": {"containerStatuses": [{"ready": not reason, "state": state}]}}


def test_an_image_that_runs_everywhere_passes_and_the_probe_is_removed(world: World) -> None:
    (world.folder / "nodes").write_text(json.dumps({"items": [node("a"), node("b"), node("off", is_ready=False)]}))
    (world.folder / "pods").write_text(json.dumps({"items": [pod("a"), pod("b")]}))
    done = world.run("check-image", "--image", OWN)
    assert done.returncode == 0, done.stderr
    assert "runs on 2 of 2 nodes" in done.stdout
    assert world.objects() == set()
    (applied,) = [json.loads(given) for words, given in world.calls() if words[0] == "apply"]
    assert applied["spec"]["template"]["spec"]["containers"][0]["image"] == OWN


def test_an_image_that_cannot_be_pulled_is_refused_with_the_nodes_and_nothing_else_is_touched(world: World) -> None:
    (world.folder / "nodes").write_text(json.dumps({"items": [node("a"), node("b")]}))
    failed = pod("b", "ImagePullBackOff", "not found")
    (world.folder / "pods").write_text(json.dumps({"items": [pod("a"), failed]}))
    done = world.run("check-image", "--image", OWN, "--timeout", "0")
    assert done.returncode != 0
    assert "cannot run on 1 of 2 nodes" in done.stderr and "b: ImagePullBackOff: not found" in done.stderr
    assert "nothing was replaced" in done.stderr
    assert world.objects() == set()
    assert {words[0] for words, _ in world.calls()} == {"get", "apply", "delete"}


@pytest.mark.parametrize(
    ("pods", "ready", "failed", "waiting"),
    [
        ([], (), {}, ("a", "b")),
        ([pod("a")], ("a",), {}, ("b",)),
        ([pod("a", "ContainerCreating"), pod("b")], ("b",), {}, ("a",)),
        ([pod("a", "ErrImagePull", "no such host")], (), {"a": "ErrImagePull: no such host"}, ("b",)),
        # An image of another architecture is pulled, and does not start.
        ([pod("a", "CrashLoopBackOff", "back-off"), pod("b")], ("b",), {"a": "CrashLoopBackOff: back-off"}, ()),
        ([{"spec": {"nodeName": "a"}}, {"spec": {}}], (), {}, ("a", "b")),
    ],
)
def test_what_the_pods_of_the_probe_show(
    pods: list[dict[str, Any]], ready: tuple[str, ...], failed: dict[str, str], waiting: tuple[str, ...]
) -> None:
    assert deploy.judge(["a", "b"], pods) == deploy.Verdict(ready, failed, waiting)


def test_a_cluster_without_nodes_proves_nothing(world: World) -> None:
    (world.folder / "nodes").write_text(json.dumps({"items": [node("off", is_ready=False)]}))
    done = world.run("check-image", "--image", OWN)
    assert done.returncode != 0 and "no Ready node" in done.stderr


def test_a_pull_that_fails_once_is_given_time() -> None:
    answers = [[pod("a", "ErrImagePull")], [pod("a")]]
    moments = iter(range(100))

    class Scripted:
        def __call__(self, *words: str, stdin: str = "") -> str:
            if words[:2] == ("get", "nodes"):
                return json.dumps({"items": [node("a"), node("b")]})
            if words[:2] == ("get", "pods"):
                return json.dumps({"items": [pod("b"), *(answers.pop(0) if len(answers) > 1 else answers[0])]})
            return ""

        def attempt(self, *words: str, stdin: str = "") -> None:
            return None

    said: list[str] = []
    deploy.check_image(
        OWN, Scripted(), said.append, timeout_s=50, clock=lambda: float(next(moments)), sleep=lambda _: None
    )
    assert said == [f"{OWN} runs on 2 of 2 nodes"]


def test_the_probe_passes_pod_security_restricted_but_for_the_hosts_network() -> None:
    spec = deploy.probe(OWN)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] and not spec["automountServiceAccountToken"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    with pytest.raises(errors.Invalid):
        deploy.probe("bedplate:latest")


def test_make_gives_the_tool_what_was_named(tmp_path: Path) -> None:
    """`make -n` shows the commands; the Makefile itself talks to no cluster."""
    environ = {**os.environ, "KUBECTL": "kubectl --context there", "IMG": OWN}
    for target, words in (("deploy", "apply"), ("undeploy", "delete"), ("check-image", "check-image")):
        line = ["make", "-n", target, "PROVIDER=cloudlycke"]
        done = subprocess.run(line, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=True)
        assert f"tools/deploy.py {words}" in done.stdout and "--kubectl 'kubectl --context there'" in done.stdout
        assert "kubectl apply" not in done.stdout and "kubectl delete" not in done.stdout
