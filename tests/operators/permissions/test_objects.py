"""What a custom resource becomes: names, order, rights, Helm releases, definitions, manifests, Kyverno's policies."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.operators.permissions import podtable

from bedplate.api import meta, names, permissions
from bedplate.api.permissions import OperatorPermission, OperatorPermissionSpec, PermissionUser, PermissionUserSpec
from bedplate.operators.permissions import crds, desired, helm, kyverno, manifests, objects, policies
from bedplate.operators.permissions.desired import Picture
from bedplate.operators.permissions.objects import ClusterFacts, identity

JOHN = podtable.resource("john", "john-restricted")
BINDINGS = ("RoleBinding", "ClusterRoleBinding")
usernames = st.text(st.sampled_from("abzAZ019-_.@ äß:"), max_size=70)
spaces = st.sampled_from(["", "dev", "kube-system", "john-restricted", "UPPER", "a" * 64, "x.y"])
specs = st.builds(
    PermissionUserSpec,
    username=usernames,
    namespace=spaces,
    role=st.sampled_from([*permissions.ROLES, "other"]),
    user_paths=st.lists(st.sampled_from(["/home/a", "relative", "/x/../y", "/"]), max_size=2).map(tuple),
    uid=st.integers(-1, 5),
    gids=st.lists(st.integers(-1, 5), min_size=1, max_size=3).map(tuple),
    create_service_account=st.booleans(),
    allow_all_uids=st.booleans(),
)
facts = st.builds(ClusterFacts, st.booleans(), st.booleans(), st.booleans())


def user(spec: PermissionUserSpec) -> PermissionUser:
    name = permissions.release_name(spec.username, spec.namespace)
    return PermissionUser(metadata=meta.ObjectMeta(name=name), spec=spec, kind=permissions.USERS.kind)


@given(specs, facts)
def test_every_valid_resource_becomes_objects_with_valid_names_in_a_safe_order(spec: Any, known: Any) -> None:
    resource = user(spec)
    if objects.problems(resource):
        return
    made = objects.objects(resource, known)
    kinds = [each["kind"] for each in made]
    assert len({identity(each) for each in made}) == len(made)
    first_binding = min(index for index, kind in enumerate(kinds) if kind in BINDINGS)
    assert all(kind in BINDINGS for kind in kinds[first_binding:])
    if "Namespace" in kinds:
        assert kinds[0] == "Namespace"
    for each in made:
        assert not names.dns_subdomain_problems(each["metadata"]["name"])
        assert each["kind"] == "Namespace" or each["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    assert made == objects.objects(resource, known)


@given(specs)
def test_nothing_is_made_for_nobody_or_in_a_namespace_of_the_cluster(spec: Any) -> None:
    found = objects.problems(user(spec))
    if not spec.username or (spec.role != "cluster-admin" and spec.namespace in ("", "kube-system")):
        assert found


def test_the_objects_of_a_user_are_the_documented_ones() -> None:
    release = JOHN.name
    assert [identity(each) for each in objects.objects(JOHN, ClusterFacts(has_kyverno=True))] == [
        "Namespace/john-restricted",
        f"ClusterPolicy/{release}-limit-hostpath-vols",
        f"ClusterPolicy/{release}-drop-privs-w-hostpath",
        f"ClusterPolicy/{release}-drop-privs-w-hostpath-containers",
        f"ClusterPolicy/{release}-drop-privs-w-hostpath-initcontainers",
        "ServiceAccount/john-restricted/john",
        "ClusterRole/john-nodes",
        "Role/john-restricted/john-restricted",
        "ClusterRoleBinding/john-nodes",
        "RoleBinding/john-restricted/john-restricted-own",
        "RoleBinding/john-restricted/john-restricted",
    ]


def test_a_release_has_seven_letters_and_digits_that_stay() -> None:
    assert re.fullmatch(r"john-[a-z0-9]{7}", permissions.release_name("john", "john-restricted"))
    assert permissions.suffix("john", "dev") == permissions.suffix("john", "dev")
    assert permissions.suffix("john", "dev") != permissions.suffix("john", "prod")


@given(usernames, usernames)
def test_different_users_have_different_objects(first: str, second: str) -> None:
    if first != second and not permissions.username_problems(first) + permissions.username_problems(second):
        assert permissions.user_part(first) != permissions.user_part(second)


@given(usernames, st.text(max_size=80))
def test_helm_takes_the_name_of_every_release(name: str, namespace: str) -> None:
    if not permissions.username_problems(name):
        assert len(permissions.release_name(name, namespace)) <= 53
    assert len(permissions.release_name("x" * 63, namespace)) <= 53


def test_a_name_that_is_too_long_is_told_also_of_an_administrator() -> None:
    for role in permissions.ROLES:
        spec = permissions.PermissionUserSpec(username="john", namespace="john-restricted", role=role)
        named = msgspec.structs.replace(JOHN, metadata=meta.ObjectMeta(name="x" * 64), spec=spec)
        assert objects.problems(named) == [f"the name {'x' * 64!r} is longer than 63 characters"]


@pytest.mark.parametrize("name", ["system:admin", "", "a b", "ä"])
def test_some_users_get_no_rights(name: str) -> None:
    assert permissions.username_problems(name)


def test_a_helm_release_reads_back() -> None:
    made = objects.objects(JOHN, ClusterFacts())
    secret = helm.release(JOHN, made)
    assert secret["metadata"]["name"] == f"sh.helm.release.v1.{JOHN.name}.v1"
    packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    record = msgspec.json.decode(gzip.decompress(packed))
    assert list(yaml.safe_load_all(record["manifest"])) == made
    assert (record["name"], record["namespace"], record["info"]["status"]) == (JOHN.name, "cm-permissions", "deployed")
    assert helm.release(JOHN, made) == secret


def test_the_defaults_of_the_definition_are_those_of_the_model() -> None:
    (definition, *_) = crds.definitions()
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    defaults = {name: field["default"] for name, field in schema["properties"].items()}
    assert msgspec.convert(defaults, PermissionUserSpec) == PermissionUserSpec()
    assert set(defaults) == set(PermissionUserSpec.__struct_fields__)


def test_the_manifests_have_all_that_a_manager_needs() -> None:
    outside = manifests.objects("https://10.0.0.1:9443")
    kinds = [each["kind"] for each in outside]
    assert kinds[:3] == ["Namespace"] * 3
    assert kinds.count("CustomResourceDefinition") == 4
    assert "Deployment" not in kinds
    for each in outside[-2:]:
        for webhook in each["webhooks"]:
            assert webhook["clientConfig"]["url"].startswith("https://10.0.0.1:9443/")
            assert "caBundle" not in webhook["clientConfig"]
            assert webhook["failurePolicy"] == "Fail"
            expressions = webhook["namespaceSelector"]["matchExpressions"]
            assert {"key": permissions.LABEL_POD_RULES, "operator": "Exists"} in expressions or any(
                one["key"] == permissions.LABEL_POD_RULES for one in expressions
            )
            assert any("kube-system" in one.get("values", ()) for one in expressions)
            assert all("DELETE" not in rule["operations"] for rule in webhook["rules"])
    inside = {each["kind"]: each for each in manifests.objects()}
    replicas = inside["Deployment"]["spec"]
    assert (replicas["replicas"], inside["PodDisruptionBudget"]["spec"]["minAvailable"]) == (2, 1)
    for selector in (
        inside["PodDisruptionBudget"]["spec"]["selector"],
        replicas["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"],
        replicas["selector"],
    ):
        assert selector["matchLabels"].items() <= replicas["template"]["metadata"]["labels"].items()
    assert all("service" in one["clientConfig"] for each in manifests.objects()[-2:] for one in each["webhooks"])


def picture(**fields: Any) -> Picture:
    namespace = meta.PartialObject(metadata=meta.ObjectMeta(name="john-restricted"))
    return Picture(**{"facts": ClusterFacts(), "neighbours": (), "namespace": namespace, **fields})


def test_a_namespace_from_before_is_not_marked_as_created() -> None:
    made = {each["kind"]: each for each in desired.wanted(JOHN, picture())}
    assert permissions.ANNOTATION_CREATED not in made["Namespace"]["metadata"]["annotations"]
    made = {each["kind"]: each for each in desired.wanted(JOHN, picture(namespace=None))}
    assert permissions.ANNOTATION_CREATED in made["Namespace"]["metadata"]["annotations"]


def test_nobody_gets_rights_without_a_guard() -> None:
    reason = desired.reason_against(JOHN, picture(is_guarded=False))
    assert reason is not None
    assert reason.reason == "NotGuarded"


def test_releases_of_one_name_have_names_of_their_own() -> None:
    spec = OperatorPermissionSpec("john", "john-restricted")
    metadata = meta.ObjectMeta(name=JOHN.name)
    spark = OperatorPermission(metadata=metadata, spec=spec, kind=permissions.SPARKS.kind)
    assert desired.release_of(JOHN, (spark,)) == JOHN.name
    assert desired.release_of(spark, (JOHN,)) == f"{JOHN.name}-spark"
    assert desired.release_of(spark, ()) == JOHN.name


def test_kyverno_gets_the_documented_values() -> None:
    values = kyverno.policy_values(frozenset(kyverno.FEATURES))
    excluded = {name: rule["any"][0]["resources"]["namespaces"] for name, rule in values["policyExclude"].items()}
    assert values["validationFailureAction"] == "Enforce"
    assert excluded == {
        "disallow-host-namespaces": ["default", "prometheus"],
        "disallow-host-path": [
            "default",
            "local-path-storage",
            "*-restricted",
            "prometheus",
            "kube-system",
            "gpu-operator",
        ],
        "disallow-host-ports": ["default", "prometheus"],
    }
    plain = kyverno.policy_values(frozenset())["policyExclude"]["disallow-host-path"]["any"][0]["resources"]
    assert plain == {"kinds": ["Pod"], "namespaces": ["default", "*-restricted", "kube-system"]}
    replicas = {name: {"replicas": 3} for name in kyverno.CONTROLLERS}
    assert kyverno.engine_values(is_ha=True) == {"replicaCount": 3, **replicas}
    assert kyverno.engine_values(is_ha=False) == {}
    with pytest.raises(ValueError, match="no-such"):
        kyverno.policy_values(frozenset({"no-such"}))


def test_kyvernos_queries_have_an_answer_for_pods_without_the_list_they_ask_about() -> None:
    """Kyverno refuses a pod for which a query has none."""
    free = podtable.resource("free", "free-restricted", allow_all_uids=True)
    rendered = [
        each for each in objects.objects(free, ClusterFacts(has_kyverno=True)) if each["kind"] == "ClusterPolicy"
    ]
    queries = re.findall(r"request\.object\.spec\.\w+\[[^\]]*\][^}\"]*", json.dumps(rendered))
    assert len(queries) >= len(rendered)
    assert all("|| `[]`" in each for each in queries), queries


def test_kyverno_refuses_host_paths_of_users_without_identity_and_those_that_are_created_as_root() -> None:
    nobody = podtable.resource("nobody", "nobody-restricted", **podtable.USERS["nobody"])
    for resource, paths in ((JOHN, True), (nobody, False)):
        rendered = objects.objects(resource, ClusterFacts(has_kyverno=True))
        (policy,) = [each for each in rendered if each["metadata"]["name"].endswith("limit-hostpath-vols")]
        path, _, creating = policy["spec"]["rules"][0]["validate"]["foreach"][0]["deny"]["conditions"]["any"]
        assert bool(path["value"]) is paths
        assert creating["value"] == ["DirectoryOrCreate", "FileOrCreate"]


def test_kyvernos_policies_are_enforced_and_not_run_in_the_background() -> None:
    made = kyverno.policies(podtable.rules("john").sets[0], "john-restricted", {})
    assert len(made) == 4
    for each in made:
        assert each["spec"]["background"] is False
        assert each["spec"]["validationFailureAction"].lower() == "enforce"


def test_one_policy_serves_all_users() -> None:
    policy, binding = policies.objects(has_strict_groups=True)
    older, _ = policies.objects(has_strict_groups=False)
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert "Strict" in str(policy) and "Strict" not in str(older)
    assert policy["spec"]["failurePolicy"] == "Fail"
