"""Flags in static pods' manifests."""

from __future__ import annotations

import pytest
import yaml

from bedplate.api.desired import Flag
from bedplate.api.manifests import with_flags
from bedplate.core import errors

POD = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: kube-apiserver
    command: [kube-apiserver, --advertise-address=10.0.0.1, --v=2, --profiling]
  - name: sidecar
    command: [run]
    args: [--v=1]
"""


def flag(key: str, value: str = "", container: str = "kube-apiserver") -> Flag:
    return Flag(manifest="kube-apiserver.yaml", container=container, key=key, value=value)


def command(text: str, container: int = 0, words: str = "command") -> list[str]:
    found: list[str] = yaml.safe_load(text)["spec"]["containers"][container][words]
    return found


def test_a_flag_with_and_one_without_a_value_are_added_once() -> None:
    flags = [flag("oidc-client-id", "runai"), flag("allow-privileged")]
    text = with_flags(POD, flags)
    assert command(text)[-2:] == ["--oidc-client-id=runai", "--allow-privileged"]
    assert with_flags(text, flags) == text


def test_a_flag_that_is_there_gets_the_value_at_its_place() -> None:
    text = with_flags(POD, [flag("advertise-address", "192.168.200.148"), flag("profiling", "false")])
    assert command(text) == ["kube-apiserver", "--advertise-address=192.168.200.148", "--v=2", "--profiling=false"]


def test_a_flag_that_begins_alike_is_another_one() -> None:
    assert command(with_flags(POD, [flag("vmodule", "a=1")]))[1:] == [
        "--advertise-address=10.0.0.1",
        "--v=2",
        "--profiling",
        "--vmodule=a=1",
    ]


def test_a_cleared_flag_is_gone() -> None:
    assert command(with_flags(POD, [], [flag("v", "2")])) == [
        "kube-apiserver",
        "--advertise-address=10.0.0.1",
        "--profiling",
    ]


def test_another_containers_arguments_are_changed_where_they_stand() -> None:
    text = with_flags(POD, [flag("v", "9", "sidecar")])
    assert command(text, 1, "args") == ["--v=9"]
    assert command(text) == command(POD)


def test_an_unknown_container_is_named() -> None:
    with pytest.raises(errors.NotFound, match="no container 'proxy'"):
        with_flags(POD, [flag("v", "1", "proxy")])


@pytest.mark.parametrize("text", ["", "a: [", "kind: Pod", "spec: {}"])
def test_what_is_no_pod_is_refused(text: str) -> None:
    with pytest.raises(errors.Invalid):
        with_flags(text, [flag("v", "1")])
