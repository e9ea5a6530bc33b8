"""Flags in static pods: one line changes, everything else stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.agent.machines import Machine

from bedplate.agent.files import FileProblem
from bedplate.agent.manifests import FOLDER, Manifests, with_flag
from bedplate.api.desired import Desired, Flag
from bedplate.api.steps import Step

TEXT = """\
apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: 10.0.0.1:6443
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address=10.0.0.1
    - --allow-privileged=true
    image: registry/kube-apiserver:v1.31.0
    name: kube-apiserver
    volumeMounts:
    - mountPath: /etc/ssl
      name: certs
  - name: side
    command:
      - side
      - "--quoted=a b"
    image: side
  hostNetwork: true
  volumes:
  - hostPath:
      path: /etc/ssl
    name: kube-apiserver
status: {}
"""
PATH = f"{FOLDER}/kube-apiserver.yaml"


def command(text: str, container: str) -> list[str]:
    containers = yaml.safe_load(text)["spec"]["containers"]
    return next(list(one["command"]) for one in containers if one["name"] == container)


@pytest.mark.parametrize(
    ("container", "key", "argument", "expected"),
    [
        (
            "kube-apiserver",
            "v",
            "--v=4",
            ["kube-apiserver", "--advertise-address=10.0.0.1", "--allow-privileged=true", "--v=4"],
        ),
        (
            "kube-apiserver",
            "advertise-address",
            "--advertise-address=::1",
            ["kube-apiserver", "--advertise-address=::1", "--allow-privileged=true"],
        ),
        ("kube-apiserver", "allow-privileged", None, ["kube-apiserver", "--advertise-address=10.0.0.1"]),
        (
            "kube-apiserver",
            "allow",
            None,
            ["kube-apiserver", "--advertise-address=10.0.0.1", "--allow-privileged=true"],
        ),
        ("side", "quoted", "--quoted=it's: {odd} #1", ["side", "--quoted=it's: {odd} #1"]),
        ("side", "profiling", "--profiling", ["side", "--quoted=a b", "--profiling"]),
    ],
)
def test_item_120_a_flag_is_set_and_cleared_in_its_container(
    container: str, key: str, argument: str | None, expected: list[str]
) -> None:
    edited = with_flag(TEXT, container, key, argument)
    assert edited is not None
    assert command(edited[0], container) == expected
    other = "side" if container == "kube-apiserver" else "kube-apiserver"
    assert command(edited[0], other) == command(TEXT, other)
    assert len(set(edited[0].splitlines()) ^ set(TEXT.splitlines())) <= 2


def test_a_container_that_is_not_there_is_not_made() -> None:
    assert with_flag(TEXT, "none", "v", "--v=4") is None
    assert with_flag("kind: Pod\n", "kube-apiserver", "v", "--v=4") is None


def test_what_was_there_before_comes_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node")
    machine.state.open()
    machine.put(PATH, TEXT, 0o600)
    manifests = Manifests(machine.root, machine.state)
    flags = tuple(
        Flag(manifest="kube-apiserver.yaml", container="kube-apiserver", key=key, value="9")
        for key in ("advertise-address", "v")
    )
    state = Desired(node="n", flags=flags)
    for flag in flags:
        manifests.apply(Step("flag", flag.name, "set"), None, state)
        manifests.apply(Step("flag", flag.name, "set"), None, state)
    assert command(machine.at(PATH).read_text(), "kube-apiserver")[1:] == [
        "--advertise-address=9",
        "--allow-privileged=true",
        "--v=9",
    ]
    assert all(manifests.is_set(flag) for flag in flags)
    for flag in flags:
        manifests.apply(Step("flag", flag.name, "clear"), state, Desired(node="n"))
    assert machine.at(PATH).read_text() == TEXT
    assert machine.at(PATH).stat().st_mode & 0o777 == 0o600
    assert machine.state.flags() == {}


def test_a_manifest_that_is_not_there_yet_is_kubeadms(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node")
    machine.state.open()
    manifests = Manifests(machine.root, machine.state)
    flag = Flag(manifest="kube-apiserver.yaml", container="none", key="v", value="9")
    manifests.apply(Step("flag", flag.name, "set"), None, Desired(node="n", flags=(flag,)))
    assert manifests.is_set(flag)
    machine.put(PATH, TEXT)
    with pytest.raises(FileProblem, match="no container none"):
        manifests.apply(Step("flag", flag.name, "set"), None, Desired(node="n", flags=(flag,)))
