"""RBAC: who may do what, how a refusal reads, and that nobody gives away more than he has."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import Api, Json
from tests.conformance.objects import apps, config_map, core, deployment, path, unique
from tests.waiting import until

RBAC = "rbac.authorization.k8s.io"


def rule(verbs: str, resources: str, group: str = "", **more: Json) -> Json:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **more}


def subject(user: str) -> Json:
    if user.startswith("system:serviceaccount:"):
        _, _, namespace, name = user.split(":")
        return {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    return {"kind": "User", "apiGroup": RBAC, "name": user}


async def role(api: Api, ns: str, *rules: Json) -> str:
    """A Role (a ClusterRole where ns is empty) of these rules."""
    name, kind = unique("role"), "Role" if ns else "ClusterRole"
    body = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name}, "rules": list(rules)}
    await api.create(path(RBAC, "v1", ns, f"{kind.lower()}s"), body)
    return name


def binding(ns: str, kind: str, name: str, who: Json) -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if ns else "ClusterRoleBinding",
        "metadata": {"name": unique("binding")},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [who],
    }


def bindings(ns: str) -> str:
    return path(RBAC, "v1", ns, "rolebindings" if ns else "clusterrolebindings")


async def grant(api: Api, ns: str, user: str, *rules: Json) -> None:
    """Bind the user to these rules in the namespace (everywhere when empty) and wait until they hold."""
    name = await role(api, ns, *rules)
    await api.create(bindings(ns), binding(ns, "Role" if ns else "ClusterRole", name, subject(user)))
    await effective(api, ns, user, rules[0])


async def effective(api: Api, ns: str, user: str, granted: Json) -> None:
    if "nonResourceURLs" in granted:
        attributes = {
            "nonResourceAttributes": {"path": granted["nonResourceURLs"][0].rstrip("*"), "verb": granted["verbs"][0]}
        }
    else:
        resource, _, sub = granted["resources"][0].partition("/")
        wanted = {"namespace": ns, "verb": granted["verbs"][0], "group": granted["apiGroups"][0], "resource": resource}
        names = granted.get("resourceNames", [""])
        attributes = {"resourceAttributes": {**wanted, "subresource": sub, "name": names[0]}}
    groups = ["system:authenticated"]
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}

    async def allowed() -> bool:
        answer = await api.create(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {**body, "spec": {"user": user, "groups": groups, **attributes}},
        )
        return bool(answer["status"]["allowed"])

    await until(allowed, f"{user} may {granted}")


async def test_a_user_without_rights_is_refused_by_name(api: Api, ns: str) -> None:
    status = (await api.impersonate("jane").get(core(ns, "configmaps"))).fails(403, "Forbidden")
    assert status["message"] == (
        'configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" '
        f'in the namespace "{ns}"'
    )
    assert status["details"] == {"kind": "configmaps"}
    status = (await api.impersonate("jane").get(apps(ns, "deployments", "d"))).fails(403, "Forbidden")
    assert status["message"] == (
        'deployments.apps "d" is forbidden: User "jane" cannot get resource "deployments" in API group "apps" '
        f'in the namespace "{ns}"'
    )
    assert status["details"] == {"name": "d", "group": "apps", "kind": "deployments"}
    status = (await api.impersonate("jane").get("/api/v1/nodes")).fails(403, "Forbidden")
    assert status["message"] == (
        'nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope'
    )


async def test_a_role_grants_its_verbs_in_its_namespace_only(api: Api, ns: str) -> None:
    user = unique("reader")
    await grant(api, ns, user, rule("get list", "configmaps"))
    jane = api.impersonate(user)
    await api.create(core(ns, "configmaps"), config_map("a"))
    await jane.read(core(ns, "configmaps"))
    await jane.read(core(ns, "configmaps", "a"))
    (await jane.post(core(ns, "configmaps"), config_map("b"))).fails(403, "Forbidden")
    (await jane.delete(core(ns, "configmaps", "a"))).fails(403, "Forbidden")
    (await jane.get(core(ns, "configmaps"), watch=True)).fails(403, "Forbidden")
    (await jane.get(core("default", "configmaps"))).fails(403, "Forbidden")
    (await jane.get("/api/v1/configmaps")).fails(403, "Forbidden")
    (await jane.get(core(ns, "secrets"))).fails(403, "Forbidden")


async def test_a_cluster_role_bound_in_a_namespace_holds_there(api: Api, ns: str) -> None:
    user = unique("user")
    name = await role(api, "", rule("list", "configmaps"))
    await api.create(bindings(ns), binding(ns, "ClusterRole", name, subject(user)))
    await effective(api, ns, user, rule("list", "configmaps"))
    await api.impersonate(user).read(core(ns, "configmaps"))
    (await api.impersonate(user).get("/api/v1/configmaps")).fails(403, "Forbidden")


async def test_a_cluster_binding_holds_everywhere(api: Api, ns: str) -> None:
    user = unique("user")
    await grant(api, "", user, rule("list", "configmaps"), rule("list", "nodes"))
    jane = api.impersonate(user)
    await jane.read("/api/v1/configmaps")
    await jane.read(core(ns, "configmaps"))
    await jane.read("/api/v1/nodes")


async def test_resource_names_limit_single_objects(api: Api, ns: str) -> None:
    user = unique("user")
    for name in "ab":
        await api.create(core(ns, "configmaps"), config_map(name))
    await grant(api, ns, user, rule("get update delete list", "configmaps", resourceNames=["a"]))
    jane = api.impersonate(user)
    await jane.read(core(ns, "configmaps", "a"))
    (await jane.get(core(ns, "configmaps", "b"))).fails(403, "Forbidden")
    (await jane.get(core(ns, "configmaps"))).fails(403, "Forbidden")
    assert await jane.names(core(ns, "configmaps"), fieldSelector="metadata.name=a") == ["a"]


async def test_subresources_are_granted_apart(api: Api, ns: str) -> None:
    user = unique("user")
    await api.create(apps(ns, "deployments"), deployment("d"))
    await grant(api, ns, user, rule("get patch", "deployments/scale", "apps"))
    jane = api.impersonate(user)
    (await jane.patch(apps(ns, "deployments", "d", "scale"), {"spec": {"replicas": 0}})).expect(200)
    (await jane.get(apps(ns, "deployments", "d"))).fails(403, "Forbidden")
    status = (await jane.get(apps(ns, "deployments", "d", "status"))).fails(403, "Forbidden")
    assert 'cannot get resource "deployments/status" in API group "apps"' in status["message"]


async def test_non_resource_paths(api: Api) -> None:
    user = unique("user")
    jane = api.impersonate(user)
    (await jane.get("/version")).expect(200)
    status = (await jane.get("/metrics")).fails(403, "Forbidden")
    assert status["message"] == f'forbidden: User "{user}" cannot get path "/metrics"'
    await grant(api, "", user, {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]})
    assert (await jane.get("/metrics")).status == 200


async def test_groups_are_subjects(api: Api, ns: str) -> None:
    group = unique("group")
    name = await role(api, ns, rule("list", "configmaps"))
    await api.create(bindings(ns), binding(ns, "Role", name, {"kind": "Group", "apiGroup": RBAC, "name": group}))

    async def listed() -> bool:
        return (await api.impersonate("jane", group).get(core(ns, "configmaps"))).status == 200

    await until(listed, "group may list")
    (await api.impersonate("jane", "others").get(core(ns, "configmaps"))).fails(403, "Forbidden")


async def test_wildcards(api: Api, ns: str) -> None:
    user = unique("user")
    await grant(api, ns, user, {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]})
    jane = api.impersonate(user)
    for collection in (core(ns, "configmaps"), apps(ns, "deployments"), path(RBAC, "v1", ns, "roles")):
        await jane.read(collection)
    (await jane.post(core(ns, "configmaps"), config_map("a"))).fails(403, "Forbidden")


async def test_aggregated_cluster_roles_gather_rules(api: Api, ns: str) -> None:
    label = unique("aggregate")
    total, part, user = unique("total"), unique("part"), unique("user")
    base = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole"}
    roles = path(RBAC, "v1", "", "clusterroles")
    selector = {"clusterRoleSelectors": [{"matchLabels": {label: "yes"}}]}
    await api.create(roles, {**base, "metadata": {"name": total}, "aggregationRule": selector, "rules": []})
    granted = rule("list", "configmaps")
    await api.create(roles, {**base, "metadata": {"name": part, "labels": {label: "yes"}}, "rules": [granted]})

    async def gathered() -> bool:
        return bool((await api.read(f"{roles}/{total}")).get("rules") == [granted])

    await until(gathered, "rules aggregated")
    await api.create(bindings(ns), binding(ns, "ClusterRole", total, subject(user)))
    await effective(api, ns, user, granted)


async def test_nobody_creates_a_role_beyond_his_own_rights(api: Api, ns: str) -> None:
    user = unique("user")
    await grant(api, ns, user, rule("create", "roles rolebindings", RBAC), rule("get", "configmaps"))
    jane = api.impersonate(user, "system:authenticated")
    body = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "more"}, "rules": [rule("get", "secrets")]}
    status = (await jane.post(path(RBAC, "v1", ns, "roles"), body)).fails(403, "Forbidden")
    assert "is attempting to grant RBAC permissions not currently held" in status["message"]
    await jane.create(path(RBAC, "v1", ns, "roles"), {**body, "rules": [rule("get", "configmaps")]})


async def test_nobody_binds_a_role_beyond_his_own_rights(api: Api, ns: str) -> None:
    user = unique("user")
    await grant(api, ns, user, rule("create", "rolebindings", RBAC), rule("get", "configmaps"))
    jane = api.impersonate(user, "system:authenticated")
    high = await role(api, ns, rule("get", "secrets"))
    low = await role(api, ns, rule("get", "configmaps"))
    (await jane.post(bindings(ns), binding(ns, "Role", high, subject("x")))).fails(403, "Forbidden")
    await jane.create(bindings(ns), binding(ns, "Role", low, subject("x")))
    await grant(api, ns, user, rule("bind", "roles", RBAC, resourceNames=[high]))
    await jane.create(bindings(ns), binding(ns, "Role", high, subject("x")))


async def test_the_role_of_a_binding_is_immutable(api: Api, ns: str) -> None:
    first, second = await role(api, ns, rule("get", "configmaps")), await role(api, ns, rule("get", "secrets"))
    made = await api.create(bindings(ns), binding(ns, "Role", first, subject("x")))
    made["roleRef"]["name"] = second
    status = (await api.put(f"{bindings(ns)}/{made['metadata']['name']}", made)).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "roleRef"


async def test_service_accounts_act_with_their_tokens(api: Api, stranger: Api, ns: str) -> None:
    await objects.usable_namespace(api, ns)
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    await api.create(core(ns, "serviceaccounts"), body)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await api.create(core(ns, "serviceaccounts", "robot", "token"), request))["status"]["token"]
    robot = stranger.with_headers(Authorization=f"Bearer {token}")
    status = (await robot.get(core(ns, "configmaps"))).fails(403, "Forbidden")
    assert f'User "system:serviceaccount:{ns}:robot"' in status["message"]
    await grant(api, ns, f"system:serviceaccount:{ns}:robot", rule("list", "configmaps"))
    await robot.read(core(ns, "configmaps"))


async def test_impersonation_needs_a_right(api: Api, stranger: Api, ns: str) -> None:
    user = f"system:serviceaccount:{ns}:robot"
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    await api.create(core(ns, "serviceaccounts"), body)
    token_request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await api.create(core(ns, "serviceaccounts", "robot", "token"), token_request))["status"]["token"]
    robot = stranger.with_headers(Authorization=f"Bearer {token}")
    who = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    status = (await robot.impersonate("jane").post(reviews, who)).fails(403, "Forbidden")
    assert status["message"] == (
        f'users "jane" is forbidden: User "{user}" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )
    await grant(api, "", user, rule("impersonate", "users", resourceNames=["jane"]))
    assert (await robot.impersonate("jane").create(reviews, who))["status"]["userInfo"]["username"] == "jane"
    (await robot.impersonate("joe").post(reviews, who)).fails(403, "Forbidden")
    (await robot.impersonate("jane", "system:masters").post(reviews, who)).fails(403, "Forbidden")


async def test_impersonating_a_service_account_brings_its_groups(api: Api, ns: str) -> None:
    service_account = f"system:serviceaccount:{ns}:default"
    who = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await api.impersonate(service_account).create("/apis/authentication.k8s.io/v1/selfsubjectreviews", who)
    groups = answer["status"]["userInfo"]["groups"]
    assert f"system:serviceaccounts:{ns}" in groups
    assert "system:serviceaccounts" in groups


async def test_a_wrong_token_is_unauthorized_and_none_is_anonymous(stranger: Api, ns: str) -> None:
    liar = stranger.with_headers(Authorization="Bearer wrong")
    assert (await liar.get(core(ns, "configmaps"))).fails(401, "Unauthorized")["message"] == "Unauthorized"
    status = (await stranger.get(core(ns, "configmaps"))).fails(403, "Forbidden")
    assert 'User "system:anonymous"' in status["message"]
    (await stranger.get("/version")).expect(200)
