"""Applies the manifests of a manager, removes them again, and checks that nodes can run the image.

    python tools/deploy.py apply --provider PROVIDER --image NAME [--kubectl COMMAND]     `make deploy`
    python tools/deploy.py delete --provider PROVIDER [--kubectl COMMAND]                 `make undeploy`
    python tools/deploy.py check-image --image NAME [--kubectl COMMAND] [--timeout S]     `make check-image`

In: the files of the provider below deploy/ and manifests/, kubectl. Out: the objects in kubectl's cluster, with the
image that was named. Secrets belong to the administrator: one that exists is left as it is, one with a placeholder for
a token is refused before anything is applied, and only a Secret that `apply` made is deleted. `check-image` runs the
image once on every node, replaces nothing, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import manifest
import yaml

from bedplate.cloud.http.secrets import PLACEHOLDER
from bedplate.core import errors

ROOT = manifest.ROOT
FILES = {
    "nvidia-bmm": ("deploy/rbac", "deploy/manifests"),
    "oxide": ("manifests/oxide-cloud-controller-manager.yaml",),
    "cloudlycke": ("manifests/cloudlycke-ccm.yaml",),
}
MADE = "bedplate.dev/made-by"
"""The annotation of a Secret that `apply` made; its value is `make-deploy`."""
CHECK = "bedplate-image-check"
# Reasons of a waiting container that do not go away by themselves.
FAILED = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("CrashLoopBackOff", "RunContainerError", "CreateContainerError", "CreateContainerConfigError"),
    }
)


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a manifest, as text and parsed, with the file it comes from."""

    source: str
    text: str
    content: dict[str, Any]

    @property
    def is_secret(self) -> bool:
        return bool(self.content.get("kind") == "Secret")

    @property
    def name(self) -> str:
        return str(self.content["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.content["metadata"].get("namespace", "default"))


def documents(provider: str, root: Path = ROOT) -> Iterator[Document]:
    """The objects of a provider, in the order of their files. Folders are not descended into, as kubectl does not."""
    for name in FILES[provider]:
        place = root / name
        for path in sorted(place.glob("*.yaml")) if place.is_dir() else [place]:
            for text in re.split(r"(?m)^---\n", path.read_text()):
                content = yaml.safe_load(text)
                if content:
                    yield Document(str(path.relative_to(root)), text, content)


def placeholder(secret: Document) -> str:
    """The sample text that a Secret still has in place of a token; empty when there is none."""
    texts = [str(text) for text in (secret.content.get("stringData") or {}).values()]
    texts += [base64.b64decode(data).decode(errors="replace") for data in (secret.content.get("data") or {}).values()]
    found = PLACEHOLDER.search("\n".join(texts))
    return found[0] if found else ""


class Kubectl:
    """Runs kubectl, or whatever command stands for it."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)

    def __call__(self, *words: str, stdin: str = "") -> str:
        """Run it and return its output; what it complains of is shown, and ends the program."""
        done = self.attempt(*words, stdin=stdin)
        if done.returncode:
            raise errors.Unavailable(f"kubectl {words[0]}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        return done.stdout

    def attempt(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        line = [*self._command, *words]
        return subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=600, check=False)

    def secret(self, wanted: Document) -> dict[str, Any] | None:
        """The Secret as it is in the cluster. An error is not absence."""
        answer = self("get", "secret", wanted.name, "-n", wanted.namespace, "--ignore-not-found", "-o", "json")
        found: dict[str, Any] | None = json.loads(answer) if answer.strip() else None
        return found


def apply(provider: str, image: str, kubectl: Kubectl, say: Callable[[str], None], root: Path = ROOT) -> None:
    """Make the Secrets that are missing, then apply everything else with the image."""
    found = list(documents(provider, root))
    missing = []
    for secret in (each for each in found if each.is_secret):
        if kubectl.secret(secret) is not None:
            say(f"secret/{secret.name} exists and is left as it is")
            continue
        if sample := placeholder(secret):
            raise errors.Invalid(
                f"the Secret {secret.namespace}/{secret.name} does not exist, and {secret.source} has the placeholder "
                f"{sample!r} in place of a token",
                hint=f"write your values into {secret.source}, or create the Secret before you deploy",
            )
        missing.append(secret)
    for secret in missing:
        content = json.loads(json.dumps(secret.content))
        content["metadata"].setdefault("annotations", {})[MADE] = "make-deploy"
        # Created, not applied: one that somebody else has made in between is not overwritten.
        say(kubectl("create", "-f", "-", stdin=json.dumps(content)).strip())
    rest = [manifest.in_manifest(each.text, image) for each in found if not each.is_secret]
    say(kubectl("apply", "-f", "-", stdin="---\n".join(rest)).strip())


def delete(provider: str, kubectl: Kubectl, say: Callable[[str], None], root: Path = ROOT) -> None:
    """Delete what `apply` made; of Secrets, only those that carry its mark."""
    found = list(documents(provider, root))
    rest = "---\n".join(each.text for each in found if not each.is_secret)
    say(kubectl("delete", "--ignore-not-found", "-f", "-", stdin=rest).strip())
    for secret in (each for each in found if each.is_secret):
        existing = kubectl.secret(secret)
        if existing is None:
            continue
        if MADE not in (existing["metadata"].get("annotations") or {}):
            say(f"secret/{secret.name} was not made by `make deploy` and stays")
            continue
        precondition = f"--raw=/api/v1/namespaces/{secret.namespace}/secrets/{secret.name}"
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": existing["metadata"]["uid"]}}
        kubectl("delete", precondition, "-f", "-", stdin=json.dumps(body))
        say(f"secret/{secret.name} deleted")


# Whether nodes can run the image


def probe(image: str) -> dict[str, Any]:
    """A DaemonSet that runs on every node and does nothing, without any rights."""
    manifest.split(image)
    labels = {"app": CHECK}
    container = {
        "name": "check",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/bin/python3", "-IBSc", "import signal; signal.pause()"],
        "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        # The host's network: where no pod network works yet, an image can be pulled all the same.
        "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": CHECK, "namespace": "kube-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which nodes run the image, which cannot and why, and which have not answered yet."""

    ready: tuple[str, ...]
    failed: dict[str, str]
    waiting: tuple[str, ...]


def judge(nodes: list[str], pods: list[dict[str, Any]]) -> Verdict:
    """What the pods of the probe show."""
    ready: set[str] = set()
    failed: dict[str, str] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        for status in pod.get("status", {}).get("containerStatuses") or []:
            waiting = status.get("state", {}).get("waiting") or {}
            if status.get("ready"):
                ready.add(node)
            elif waiting.get("reason") in FAILED:
                failed[node] = f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    rest = [node for node in nodes if node not in ready and node not in failed]
    return Verdict(tuple(sorted(ready)), failed, tuple(sorted(rest)))


def check_image(
    image: str,
    kubectl: Kubectl,
    say: Callable[[str], None],
    *,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Run the image on every Ready node; raises with the nodes that cannot, and removes the probe in any case."""
    nodes = _ready_nodes(json.loads(kubectl("get", "nodes", "-o", "json")))
    if not nodes:
        raise errors.Unavailable("the cluster has no Ready node that could pull the image")
    kubectl("apply", "-f", "-", stdin=json.dumps(probe(image)))
    end = clock() + timeout_s
    try:
        while True:
            pods = json.loads(kubectl("get", "pods", "-n", "kube-system", "-l", f"app={CHECK}", "-o", "json"))["items"]
            verdict = judge(nodes, pods)
            # A kubelet tries a failed pull again: what counts is what fails on all nodes, or still at the end.
            if not verdict.waiting and (not verdict.failed or not verdict.ready):
                break
            if clock() >= end:
                break
            sleep(1.0)
    finally:
        kubectl.attempt("delete", "daemonset", CHECK, "-n", "kube-system", "--ignore-not-found", "--wait=false")
    wrong = verdict.failed | dict.fromkeys(verdict.waiting, "no answer in time")
    if wrong:
        raise errors.Invalid(
            f"{image} cannot run on {len(wrong)} of {len(nodes)} nodes",
            problems=[f"{node}: {reason}" for node, reason in sorted(wrong.items())],
            hint="push it to a registry that the nodes can pull from, or load it into them; nothing was replaced",
        )
    say(f"{image} runs on {len(verdict.ready)} of {len(nodes)} nodes")


def _ready_nodes(answer: dict[str, Any]) -> list[str]:
    def is_ready(node: dict[str, Any]) -> bool:
        conditions = node.get("status", {}).get("conditions") or []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    return [node["metadata"]["name"] for node in answer["items"] if is_ready(node)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Apply a manager's manifests, remove them, check the image.")
    parser.add_argument("what", choices=("apply", "delete", "check-image"))
    parser.add_argument("--provider", choices=sorted(FILES), help="whose manifests")
    parser.add_argument("--image", default=manifest.default_image(), help="full name of the image, with its tag")
    parser.add_argument("--kubectl", default="kubectl", help="the command to run, with its first words")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for check-image (%(default)s)")
    given = parser.parse_args()
    if given.what != "check-image" and given.provider is None:
        parser.error(f"{given.what} needs --provider")
    kubectl = Kubectl(given.kubectl)
    try:
        if given.what == "apply":
            apply(given.provider, given.image, kubectl, print)
        elif given.what == "delete":
            delete(given.provider, kubectl, print)
        else:
            check_image(given.image, kubectl, print, timeout_s=given.timeout)
    except errors.BedplateError as err:
        sys.exit(f"deploy: {err}{f' ({err.hint})' if err.hint else ''}")


if __name__ == "__main__":
    main()
