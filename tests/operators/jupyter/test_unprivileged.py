"""Every way to ask for privileges is refused with its field, and what is left is run as the user."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.operators.jupyter import unprivileged

PLAIN: dict[str, Any] = {"containers": [{"name": "kernel", "image": "x"}]}
CASES: list[tuple[dict[str, Any], str]] = [
    ({"hostNetwork": True}, "spec.pod.hostNetwork"),
    ({"hostPID": True}, "spec.pod.hostPID"),
    ({"hostIPC": True}, "spec.pod.hostIPC"),
    ({"securityContext": {"runAsUser": 0}}, "spec.pod.securityContext.runAsUser"),
    ({"securityContext": {"runAsUser": 1001}}, "spec.pod.securityContext.runAsUser"),
    ({"securityContext": {"runAsGroup": 0}}, "spec.pod.securityContext.runAsGroup"),
    ({"securityContext": {"runAsNonRoot": False}}, "spec.pod.securityContext.runAsNonRoot"),
    ({"securityContext": {"fsGroup": 0}}, "spec.pod.securityContext.fsGroup"),
    ({"securityContext": {"supplementalGroups": [7, 0]}}, "spec.pod.securityContext.supplementalGroups"),
    ({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}, "spec.pod.securityContext.sysctls"),
    (
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        "spec.pod.securityContext.seccompProfile.type",
    ),
    ({"ephemeralContainers": [{"name": "debug"}]}, "spec.pod.ephemeralContainers"),
]
CONTAINER: list[tuple[dict[str, Any], str]] = [
    ({"securityContext": {"privileged": True}}, "securityContext.privileged"),
    ({"securityContext": {"allowPrivilegeEscalation": True}}, "securityContext.allowPrivilegeEscalation"),
    ({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}, "securityContext.capabilities.add"),
    ({"securityContext": {"procMount": "Unmasked"}}, "securityContext.procMount"),
    ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser"),
    ({"securityContext": {"runAsNonRoot": False}}, "securityContext.runAsNonRoot"),
    ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, "securityContext.windowsOptions.hostProcess"),
    ({"securityContext": {"seLinuxOptions": {"user": "system_u"}}}, "securityContext.seLinuxOptions"),
    ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, "securityContext.appArmorProfile.type"),
    ({"ports": [{"containerPort": 1, "hostPort": 80}]}, "ports[0].hostPort"),
]


@pytest.mark.parametrize(("change", "field"), CASES, ids=[field for _, field in CASES])
def test_a_pod_that_asks_for_more_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    (problem,) = unprivileged.problems(PLAIN | change, 1000, 1000)
    assert problem.startswith(f"{field}: ")


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize(("change", "field"), CONTAINER, ids=[field for _, field in CONTAINER])
def test_a_container_that_asks_for_more_is_refused_by_field(kind: str, change: dict[str, Any], field: str) -> None:
    first, second = {"name": "first", "image": "x"}, {"name": "second", "image": "x", **change}
    (problem,) = unprivileged.problems(PLAIN | {kind: [first, second]}, 1000, 1000)
    assert problem.startswith(f"spec.pod.{kind}[1].{field}: ")


def test_root_is_refused_and_all_problems_come_together() -> None:
    found = unprivileged.problems({**PLAIN, "hostPID": True}, 0, 0)
    assert [problem.split(":")[0] for problem in found] == ["spec.uid", "spec.gid", "spec.pod.hostPID"]


def test_what_is_not_set_is_set_and_what_fits_stays() -> None:
    given = {
        "containers": [{"name": "a", "securityContext": {"capabilities": {"drop": ["KILL"]}, "runAsUser": 1000}}],
        "initContainers": [{"name": "b"}],
        "securityContext": {"supplementalGroups": [5], "runAsUser": 1000},
    }
    assert unprivileged.problems(given, 1000, 1001) == []
    made = unprivileged.restricted(given, 1000, 1001)
    assert made["securityContext"] == {
        "fsGroup": 1001,
        "seccompProfile": {"type": "RuntimeDefault"},
        "supplementalGroups": [5],
        "runAsUser": 1000,
        "runAsGroup": 1001,
        "runAsNonRoot": True,
    }
    for kind in ("containers", "initContainers"):
        (container,) = made[kind]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert given["initContainers"] == [{"name": "b"}], "the given spec is untouched"
