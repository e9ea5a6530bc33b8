"""Writes the manifests of the cloud controller managers and of address management into the package, as applications.

    python tools/addons.py            write src/bedplate/head/applications/defaults/: ccm_*.yaml, ipam.yaml,
                                      permissions_manager.yaml, cm_jupyter_kernel_operator.yaml
    python tools/addons.py --check    fail where they are out of date

In: deploy/ and manifests/, kubectl for kustomize; the manifests of the operators of this project. Out: the same objects
with `$image` for the image and `$cluster` for the name of the cluster, and without the settings of a cloud, which a
deployment writes itself.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

import deploy
from bedplate.lab import binaries
from bedplate.operators.jupyter import manifests as jupyter_manifests
from bedplate.operators.permissions import manifests as permission_manifests

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/bedplate/head/applications/defaults"
OVERLAY = ROOT / "deploy/overlays/no-webhook"
PLACEHOLDER = "IMAGE-OF-THIS-PROJECT"
SETTINGS = {"nvidia-bmm-cloud-config", "oxide-cloud-controller-manager", "cloudlycke-cloud-config"}


def as_application(text: str) -> str:
    """A text with its variables in place of the image and the cluster; other dollars are meant as they are."""
    text = text.replace("$", "$$")
    text = re.sub(r"(?m)^(\s*(?:- )?image: )\S+$", r"\1$image", text)
    return re.sub(r"--cluster-name=\S+", "--cluster-name=$cluster", text)


def manager(provider: str) -> str:
    """The manifests of a cloud controller manager."""
    files: list[Path] = []
    for name in deploy.FILES[provider]:
        path = ROOT / name
        files += sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    kept = []
    for file in files:
        for part in re.split(r"(?m)^---\s*$", file.read_text()):
            content = yaml.safe_load(part)
            if not content:
                continue
            is_config = content["kind"] in ("Secret", "ConfigMap") and content["metadata"]["name"] in SETTINGS
            if not is_config:
                kept.append("\n".join(line for line in part.strip().splitlines() if not line.startswith("#")))
    return as_application(f"# The cloud controller manager of {provider}.\n" + "\n---\n".join(kept) + "\n")


def ipam() -> str:
    """The manifests of address management."""
    kubectl = str(binaries.ensure(["kubectl"])["kubectl"])
    done = subprocess.run([kubectl, "kustomize", str(OVERLAY)], capture_output=True, text=True, check=True)
    return as_application(
        "# Address management: its resources, the controller and the daemon of each node.\n" + done.stdout
    )


def operator(title: str, objects: Callable[[str], list[dict[str, Any]]]) -> str:
    """The manifests of an operator of this project."""
    plain = json.loads(json.dumps(objects(PLACEHOLDER)))  # What is there twice is written twice, without anchors.
    text = yaml.safe_dump_all(plain, sort_keys=False)
    return f"# {title}\n" + text.replace("$", "$$").replace(PLACEHOLDER, "$image")


def operators() -> dict[str, str]:
    """The operators of this project, by the name of their application."""
    jupyter, manager = (
        "The operator of Jupyter kernels.",
        "The permission manager: rights of users, and rules of their pods.",
    )
    return {
        "cm_jupyter_kernel_operator": operator(jupyter, jupyter_manifests.documents),
        "permissions_manager": operator(manager, lambda image: permission_manifests.objects(image=image)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail where a file is out of date, and write nothing")
    args = parser.parse_args()
    texts = {f"ccm_{provider.replace('-', '_')}": manager(provider) for provider in deploy.FILES}
    texts["ipam"] = ipam()
    texts |= operators()
    late = []
    for name, text in texts.items():
        file = TARGET / f"{name}.yaml"
        if not file.exists() or file.read_text() != text:
            late.append(name)
            if not args.check:
                file.write_text(text)
    if args.check and late:
        sys.stderr.write(f"out of date: {', '.join(late)}; run python tools/addons.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
