"""`bedplate can` on objects of a file: the answer, its reasons and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from bedplate.api import permissions
from bedplate.cli.can.command import can

NAME = permissions.release_name("john", "john-restricted")


def role(name: str, verbs: list[str], resources: list[str], groups: list[str]) -> dict[str, Any]:
    rule = {"verbs": verbs, "resources": resources, "apiGroups": groups}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [rule],
    }


def binding(user: str, namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-{name}", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def namespace(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


OBJECTS = [
    namespace("john-restricted"),
    namespace("dev"),
    namespace("strict", labels={"pod-security.kubernetes.io/enforce": "restricted"}),
    role("edit", ["create", "get", "list"], ["pods", "deployments"], ["", "apps"]),
    role("view", ["get", "list"], ["pods"], [""]),
    binding("john", "john-restricted", "edit"),
    binding("john", "strict", "edit"),
    binding("anna", "john-restricted", "view"),
    {
        "apiVersion": "charts.brightcomputing.com/v1alpha1",
        "kind": "CmkubernetesPermissionUser",
        "metadata": {"name": NAME, "namespace": "cm-permissions"},
        "spec": {
            "username": "john",
            "namespace": "john-restricted",
            "uid": 1000,
            "gids": [1000],
            "user_paths": ["/home/john"],
        },
    },
]


def pod(*volumes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], "volumes": list(volumes), **spec},
    }


def ask(tmp_path: Path, *arguments: str, about: object = None, objects: object = OBJECTS) -> Result:
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects) if isinstance(objects, list) else str(objects))
    lines = list(arguments)
    if about is not None:
        (tmp_path / "pod.yaml").write_text(about if isinstance(about, str) else yaml.safe_dump(about))
        lines += ["-f", str(tmp_path / "pod.yaml")]
    return CliRunner().invoke(can, [*lines, "--objects", str(tmp_path / "objects.yaml")])


def test_a_plain_pod_may_run_as_the_user(tmp_path: Path) -> None:
    result = ask(tmp_path, "john", about=pod())
    assert result.exit_code == 0, result.output
    assert result.output.startswith("yes: john may run Pod web in namespace john-restricted")
    assert "UID 1000" in result.output


def test_a_host_path_elsewhere_is_refused_with_rule_field_and_change(tmp_path: Path) -> None:
    result = ask(tmp_path, "john", about=pod({"name": "v", "hostPath": {"path": "/etc"}}))
    assert result.exit_code == 3, result.output
    assert f"rule:   {NAME}-limit-hostpath-vols" in result.output
    assert "field:  spec.volumes[0].hostPath.path" in result.output
    assert "change: use a path below /home/john" in result.output


def test_the_change_makes_it_yes(tmp_path: Path) -> None:
    assert ask(tmp_path, "john", about=pod({"name": "v", "hostPath": {"path": "/home/john/data"}})).exit_code == 0
    assert ask(tmp_path, "john", about=pod({"name": "v", "hostPath": {"path": "/home/johnny"}})).exit_code == 3


def test_a_workload_is_judged_by_its_template(tmp_path: Path) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": pod(hostPID=True)},
    }
    result = ask(tmp_path, "john", about=deployment)
    assert (result.exit_code, "spec.hostPID" in result.output) == (3, True)


@pytest.mark.parametrize(
    ("user", "arguments", "remedy"),
    [
        ("john", ("-n", "dev"), "use the namespace john-restricted"),
        ("anna", ("-n", "john-restricted"), "--add-user anna"),
        ("nobody", ("-n", "dev"), "--add-user nobody"),
    ],
)
def test_without_the_right_the_answer_names_the_command_that_grants_it(
    tmp_path: Path, user: str, arguments: tuple[str, ...], remedy: str
) -> None:
    result = ask(tmp_path, user, *arguments, about=pod())
    assert (result.exit_code, remedy in result.output) == (3, True), result.output


def test_the_standard_of_a_namespace_is_part_of_the_answer(tmp_path: Path) -> None:
    result = ask(tmp_path, "john", "-n", "strict", about=pod())
    assert (result.exit_code, "pod-security-restricted" in result.output) == (3, True)
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    about = pod(containers=[{"name": "main", "image": "busybox", "securityContext": context}])
    assert ask(tmp_path, "john", "-n", "strict", about=about).exit_code == 0


def test_the_rules_that_a_namespace_carries_come_first(tmp_path: Path) -> None:
    carried = namespace(
        "john-restricted",
        labels={permissions.LABEL_POD_RULES: "webhook"},
        annotations={f"{permissions.RULES_PREFIX}{NAME}": f"release={NAME}\nuser=john\nuid=7\ngid=7\npath=/data/"},
    )
    objects = [carried, *OBJECTS[1:]]
    result = ask(tmp_path, "john", about=pod({"name": "v", "hostPath": {"path": "/data"}}), objects=objects)
    assert (result.exit_code, "UID 7" in result.output) == (0, True), result.output


def test_json_has_one_entry_for_each_object(tmp_path: Path) -> None:
    about = yaml.safe_dump_all([pod(), pod(hostNetwork=True)])
    result = ask(tmp_path, "john", "-o", "json", about=about)
    answers = json.loads(result.output)
    assert [answer["allowed"] for answer in answers] == [True, False]
    assert answers[1]["reasons"][0]["field"] == "spec.hostNetwork"
    assert result.exit_code == 3


def test_the_matrix_has_users_namespaces_and_verbs(tmp_path: Path) -> None:
    result = ask(tmp_path, "--matrix", "--verb", "create", "--verb", "get", "-n", "john-restricted", "-n", "dev")
    assert result.exit_code == 0
    assert [line.split() for line in result.output.splitlines()] == [
        ["USER", "NAMESPACE", "CREATE", "GET"],
        ["anna", "john-restricted", "-", "yes"],
        ["anna", "dev", "-", "-"],
        ["john", "john-restricted", "yes", "yes"],
        ["john", "dev", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (("john",), None),
        ((), pod()),
        (("john", "--matrix"), pod()),
        (("john",), "kind: [unclosed"),
        (("john",), "kind: Service"),
        (("john",), "kind: Pod"),
        (("john",), "7"),
        (("john",), ""),
        (("john", "-n", "a", "-n", "b"), pod()),
        (("john", "--cluster-kubeconfig", "absent"), pod()),
    ],
)
def test_errors_have_an_exit_code_of_their_own(tmp_path: Path, arguments: tuple[str, ...], about: object) -> None:
    result = ask(tmp_path, *arguments, about=about)
    assert (result.exit_code, "Traceback" in result.output) == (1, False), result.output


@pytest.mark.parametrize("objects", ["{", "7", "kind: Namespace", "kind: List\nitems: [7]"])
def test_objects_that_cannot_be_read_are_an_error(tmp_path: Path, objects: str) -> None:
    assert ask(tmp_path, "john", about=pod(), objects=objects).exit_code == 1


def test_a_namespace_that_is_absent_or_ends_is_a_reason(tmp_path: Path) -> None:
    everywhere = {**binding("john", "", "edit"), "kind": "ClusterRoleBinding", "metadata": {"name": "john"}}
    result = ask(tmp_path, "john", "-n", "absent", about=pod(), objects=[*OBJECTS, everywhere])
    assert (result.exit_code, "does not exist" in result.output) == (3, True), result.output


def test_a_permission_object_of_which_nothing_can_be_made_has_no_rules(tmp_path: Path) -> None:
    """Somebody typed a wrong path: the manager makes nothing of it, and others who work there are not hindered."""
    wrong = {**OBJECTS[-1], "spec": {**OBJECTS[-1]["spec"], "namespace": "dev", "user_paths": ["/home/../john"]}}
    objects = [*OBJECTS, {**wrong, "metadata": {"name": "wrong"}}, binding("anna", "dev", "edit")]
    about = pod({"name": "v", "hostPath": {"path": "/etc"}})
    assert ask(tmp_path, "anna", "-n", "dev", about=about, objects=objects).exit_code == 0


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"priorityClassName": "high", "priority": 100}, ""),
        ({"priorityClassName": "high", "priority": 7}, "spec.priority"),
        ({"priorityClassName": "absent"}, "spec.priorityClassName"),
        ({"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"}, "spec.preemptionPolicy"),
        ({"priority": 10}, ""),
        ({"priority": 0}, "spec.priority"),
        ({"preemptionPolicy": "Never"}, "spec.preemptionPolicy"),
        ({"runtimeClassName": "nvidia"}, ""),
        ({"runtimeClassName": "absent"}, "spec.runtimeClassName"),
    ],
)
def test_classes_that_are_absent_or_say_otherwise_are_a_reason(tmp_path: Path, spec: Any, field: str) -> None:
    classes = [
        priority_class("high", 100, preemptionPolicy="Never"),
        priority_class("usual", 10, globalDefault=True),
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"},
    ]
    result = ask(tmp_path, "john", about=pod(**spec), objects=[*OBJECTS, *classes])
    assert (result.exit_code, f"field:  {field}\n" in result.output) == (3 if field else 0, bool(field)), result.output


def test_classes_that_nobody_listed_are_no_reason(tmp_path: Path) -> None:
    spec = {"runtimeClassName": "nvidia", "priority": 7, "priorityClassName": "high"}
    assert ask(tmp_path, "john", about=pod(**spec)).exit_code == 0


def test_an_ephemeral_volume_is_judged_by_the_class_of_its_template(tmp_path: Path) -> None:
    class_ = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disk"}}
    (anyone,) = [{**each, "spec": {**each["spec"], "allow_all_uids": True}} for each in OBJECTS[-1:]]
    objects = [*OBJECTS[:-1], anyone, {**class_, "provisioner": "disk.example.com"}]
    for name, code in (("disk", 0), ("absent", 3)):
        volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": name}}}}
        about = pod(volume, securityContext={"runAsUser": 0})
        assert ask(tmp_path, "john", about=about, objects=objects).exit_code == code
