"""The guide for migrating from hand-made RBAC works as written, on a real API server.

It needs the account of a person, so it sees an /etc and a /home of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests import programs
from tests.docs.test_users_page import ALONE
from tests.setup.people.managed import managed_cluster

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/migrate-from-rbac.md"
DEADLINE_S = 300

# What somebody has who begins: a namespace, a binding made by hand, and a pod that the rules would refuse.
BEFORE = """
useradd --create-home john
kubectl create namespace john-dev
kubectl create rolebinding john -n john-dev --clusterrole=edit --user=john
kubectl create serviceaccount default -n john-dev || true
kubectl run old -n john-dev --image=busybox --overrides='{"spec": {"automountServiceAccountToken": false,
  "volumes": [{"name": "v", "hostPath": {"path": "/etc"}}]}}'
sleep 1.1
"""


def blocks() -> list[str]:
    """The commands of the page."""
    return [
        "\n".join(line.strip() for line in found.splitlines())
        for found in re.findall(r"^ *```sh\n(.*?)^ *```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    ]


@pytest.mark.root
@pytest.mark.real
@pytest.mark.external
def test_the_guide_for_migrating_from_hand_made_rbac(tmp_path: Path) -> None:
    useradd, unshare = programs.on_path("useradd"), programs.on_path("unshare")
    kubectl = programs.built("kubectl")
    subprocess.run(["cp", "--archive", "/etc", str(tmp_path / "etc")], check=True)
    (tmp_path / "cluster").mkdir()
    script = BEFORE + "\n".join(f"{block}\necho block {number}: $?" for number, block in enumerate(blocks()))
    with managed_cluster("real", tmp_path / "cluster") as place:
        shutil.copyfile(place.server.kubeconfig, tmp_path / "admin.conf")
        path = (Path(sys.executable).parent, kubectl.parent, useradd.parent)
        environ = os.environ | {
            "PATH": ":".join([*map(str, path), os.environ["PATH"]]),
            "KUBECONFIG": str(tmp_path / "admin.conf"),
        }
        command = ["bash", "-c", ALONE, "bash", str(tmp_path), "bash", "-c", script]
        done = subprocess.run(
            [str(unshare), "--mount", "--propagation", "private", *command],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        said = done.stdout + done.stderr
        left = subprocess.run(
            [str(kubectl), "get", "rolebindings,pods", "-n", "john-dev", "-o", "name"],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    # 3 is the "no" of `bedplate can`; the manager was there before, so that `diff` finds nothing.
    assert re.findall(r"^block \d+: (\d+)$", done.stdout, re.MULTILINE) == ["0", "0", "0", "3", "0", "0", "0"], said
    assert "no: john may not run Pod old in namespace john-dev" in done.stdout
    assert "Removed user john: their certificate gives no rights any more." in done.stdout
    assert left.split() == ["rolebinding.rbac.authorization.k8s.io/john", "pod/old"], said
