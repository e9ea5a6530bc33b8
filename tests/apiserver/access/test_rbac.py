"""Role-based access control as a pure function of roles, bindings and a request."""

from typing import Any

import pytest

from bedplate.apiserver.access import rbac
from bedplate.apiserver.access.subjects import MASTERS, Attributes, User

ANN = User("ann", groups=("devs", "system:authenticated"))


def role(name: str, *rules: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"metadata": metadata, "rules": list(rules)}


def rule(verbs: str, resources: str = "", groups: str = "", names: str = "", paths: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"verbs": verbs.split()}
    if resources:
        found |= {"resources": resources.split(), "apiGroups": groups.split(",")}
    if names:
        found["resourceNames"] = names.split()
    if paths:
        found["nonResourceURLs"] = paths.split()
    return found


def binding(role_name: str, subject: dict[str, str], namespace: str = "", kind: str = "ClusterRole") -> dict[str, Any]:
    metadata = {"name": f"to-{role_name}", **({"namespace": namespace} if namespace else {})}
    return {"metadata": metadata, "roleRef": {"kind": kind, "name": role_name}, "subjects": [subject]}


USER = {"kind": "User", "name": "ann"}
PODS = Attributes("get", "", "v1", "pods", "", "ns", "p1")


def allowed(user: User, wish: Attributes, roles: list[Any], bindings: list[Any]) -> bool:
    return rbac.Policy.build(roles, bindings).decide(user, wish).allowed


def test_nothing_is_allowed_without_a_binding() -> None:
    assert not allowed(ANN, PODS, [role("r", rule("get", "pods"))], [])


@pytest.mark.parametrize(
    "subject",
    [USER, {"kind": "Group", "name": "devs"}],
)
def test_a_cluster_binding_holds_everywhere(subject: dict[str, str]) -> None:
    assert allowed(ANN, PODS, [role("r", rule("get", "pods"))], [binding("r", subject)])


def test_a_binding_in_a_namespace_holds_there_alone() -> None:
    roles, bindings = [role("r", rule("get", "pods"))], [binding("r", USER, "ns")]
    assert allowed(ANN, PODS, roles, bindings)
    assert not allowed(ANN, PODS._replace(namespace="other"), roles, bindings)
    assert not allowed(ANN, PODS._replace(namespace=""), roles, bindings)


def test_a_role_is_looked_up_in_the_bindings_namespace() -> None:
    roles = [role("r", rule("get", "pods"), namespace="ns")]
    assert allowed(ANN, PODS, roles, [binding("r", USER, "ns", "Role")])
    assert not allowed(ANN, PODS._replace(namespace="b"), roles, [binding("r", USER, "b", "Role")])


def test_a_service_account_is_a_user_with_a_long_name() -> None:
    account = User("system:serviceaccount:ns:bot", groups=("system:serviceaccounts",))
    subject = {"kind": "ServiceAccount", "name": "bot", "namespace": "ns"}
    assert allowed(account, PODS, [role("r", rule("get", "pods"))], [binding("r", subject)])


@pytest.mark.parametrize(
    ("resources", "wish", "expected"),
    [
        ("pods", PODS, True),
        ("pods", PODS._replace(subresource="log"), False),
        ("pods/log", PODS._replace(subresource="log"), True),
        ("*/log", PODS._replace(subresource="log"), True),
        ("pods/*", PODS._replace(subresource="log"), False),
        ("*", PODS._replace(subresource="log"), True),
        ("nodes", PODS, False),
    ],
)
def test_subresources_are_named_apart(resources: str, wish: Attributes, expected: bool) -> None:
    assert allowed(ANN, wish, [role("r", rule("get", resources))], [binding("r", USER)]) is expected


def test_names_limit_a_rule_and_so_exclude_lists() -> None:
    roles, bindings = [role("r", rule("get list", "pods", names="p1"))], [binding("r", USER)]
    assert allowed(ANN, PODS, roles, bindings)
    assert not allowed(ANN, PODS._replace(name="p2"), roles, bindings)
    assert not allowed(ANN, PODS._replace(verb="list", name=""), roles, bindings)


@pytest.mark.parametrize(("path", "expected"), [("/healthz", True), ("/healthz/etcd", True), ("/metrics", False)])
def test_paths_match_with_a_star_at_the_end(path: str, expected: bool) -> None:
    roles = [role("r", rule("get", paths="/healthz*"))]
    assert allowed(ANN, Attributes("get", path=path), roles, [binding("r", USER)]) is expected


def test_masters_may_do_everything() -> None:
    assert allowed(User("root", groups=(MASTERS,)), PODS, [], [])


def test_nobody_may_hand_out_what_they_do_not_hold() -> None:
    policy = rbac.Policy.build([role("r", rule("get list", "pods services"))], [binding("r", USER)])
    assert policy.escalation(ANN, [rule("get", "pods")], "ns") == []
    assert policy.escalation(ANN, [rule("get", "pods", names="a b")], "ns") == []
    for wanted in (
        rule("delete", "pods"),
        rule("get", "secrets"),
        rule("*", "pods"),
        rule("get", "pods", groups="apps"),
    ):
        assert policy.escalation(ANN, [wanted], "ns") == [wanted]


def test_a_limited_rule_does_not_cover_an_unlimited_one() -> None:
    policy = rbac.Policy.build([role("r", rule("get", "pods", names="a"))], [binding("r", USER)])
    assert policy.escalation(ANN, [rule("get", "pods", names="a")], "ns") == []
    assert policy.escalation(ANN, [rule("get", "pods")], "ns") != []


def test_an_aggregated_role_is_the_sum_of_those_its_selectors_find() -> None:
    sum_ = role("sum") | {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]}}
    one, two = role("b", rule("get", "pods")), role("a", rule("list", "nodes"))
    one["metadata"]["labels"] = two["metadata"]["labels"] = {"to": "sum"}
    assert rbac.aggregate(sum_, [sum_, one, two, role("c", rule("*", "*"))]) == [*two["rules"], *one["rules"]]
    assert rbac.aggregate(one, [sum_, one]) is None
