"""A CNI plugin for the lab's tests: it attaches a pod to the networks that its annotation names, the way Multus does.

It comes last in the cluster network's list of plugins. On ADD it reads the pod's annotation
`k8s.v1.cni.cncf.io/networks`, fetches each NetworkAttachmentDefinition, calls the plugin named in its configuration
with `net1`, `net2`, … as the interface, and writes what came of it into the pod's annotation `network-status`. On DEL
it calls the same plugins again with the configuration it kept. Standard library only: nodes run it outside of any
environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

STATE = Path("/var/lib/cni/attach")
NETWORKS, STATUS = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"


class Failed(Exception):
    """A plugin's own error, as it told it."""


def wanted(annotation: str) -> list[dict[str, Any]]:
    """The networks a pod asks for: a JSON list, or names separated by commas."""
    if annotation.lstrip().startswith("["):
        found: list[dict[str, Any]] = json.loads(annotation)
        return found
    return [{"name": name.strip()} for name in annotation.split(",") if name.strip()]


def kubectl(*words: str) -> str:
    done = subprocess.run(["kubectl", *words], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise Failed(json.dumps({"code": 11, "msg": f"kubectl {words[0]}: {done.stderr.strip()}"}))
    return done.stdout


def delegate(command: str, interface: str, config: dict[str, Any]) -> dict[str, Any]:
    """Call a plugin as a runtime does."""
    folders = os.environ["CNI_PATH"].split(":")
    program = next(path for folder in folders if (path := Path(folder) / config["type"]).exists())
    environ = os.environ | {"CNI_COMMAND": command, "CNI_IFNAME": interface}
    done = subprocess.run(
        [program], input=json.dumps(config), capture_output=True, text=True, env=environ, timeout=60, check=False
    )
    if done.returncode:
        raise Failed(done.stdout or json.dumps({"code": 999, "msg": done.stderr}))
    answer: dict[str, Any] = json.loads(done.stdout or "{}")
    return answer


def configuration(network: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The configuration of a network, with what this pod asks of it."""
    kind = "network-attachment-definitions.k8s.cni.cncf.io"
    where = network.get("namespace", namespace)
    config: dict[str, Any] = json.loads(
        kubectl("get", kind, network["name"], "-n", where, "-o", "jsonpath={.spec.config}")
    )
    config.setdefault("name", network["name"])
    if "ips" in network and config.get("capabilities", {}).get("ips"):
        config["runtimeConfig"] = {"ips": network["ips"]}
    if "cni-args" in network:
        config["args"] = {"cni": network["cni-args"]}
    return config


def add(container: str, namespace: str, pod: str) -> None:
    annotations = json.loads(kubectl("get", "pod", pod, "-n", namespace, "-o", "json"))["metadata"].get(
        "annotations", {}
    )
    networks = wanted(annotations.get(NETWORKS, ""))
    if not networks:
        return
    STATE.mkdir(parents=True, exist_ok=True)
    kept: list[tuple[str, dict[str, Any]]] = []
    status = []
    for number, network in enumerate(networks, 1):
        interface = network.get("interface", f"net{number}")
        config = configuration(network, namespace)
        # Kept before the call, so that a DEL finds whatever the call has left behind.
        kept.append((interface, config))
        (STATE / container).write_text(json.dumps(kept))
        result = delegate("ADD", interface, config)
        addresses = [each["address"].partition("/")[0] for each in result.get("ips", ())]
        name = f"{network.get('namespace', namespace)}/{network['name']}"
        status.append({"name": name, "interface": interface, "ips": addresses})
    kubectl("annotate", "--overwrite", "pod", pod, "-n", namespace, f"{STATUS}={json.dumps(status)}")


def delete(container: str) -> None:
    state = STATE / container
    for interface, config in reversed(json.loads(state.read_text()) if state.exists() else []):
        delegate("DEL", interface, config)
    state.unlink(missing_ok=True)


def main() -> int:
    command = os.environ.get("CNI_COMMAND", "")
    versions = ["0.4.0", "1.0.0"]
    if command == "VERSION":
        print(json.dumps({"cniVersion": versions[-1], "supportedVersions": versions}))
        return 0
    config = json.load(sys.stdin)
    words = dict(pair.split("=", 1) for pair in os.environ.get("CNI_ARGS", "").split(";") if pair)
    container = os.environ["CNI_CONTAINERID"]
    try:
        if command == "ADD":
            add(container, words["K8S_POD_NAMESPACE"], words["K8S_POD_NAME"])
            print(json.dumps(config["prevResult"]))
        elif command == "DEL":
            delete(container)
    except Failed as err:
        print(err)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
