"""Discovery: groups, versions, resources and verbs, plain and aggregated."""

from __future__ import annotations

from tests.conformance.http import Api, Json

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ALL_VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}


def resources(listed: Json) -> dict[str, Json]:
    return {each["name"]: each for each in listed["resources"]}


async def test_core_versions(api: Api) -> None:
    answer = await api.read("/api")
    assert answer["kind"] == "APIVersions"
    assert answer["versions"] == ["v1"]
    assert answer["serverAddressByClientCIDRs"][0]["clientCIDR"] == "0.0.0.0/0"


async def test_core_resources(api: Api) -> None:
    listed = await api.read("/api/v1")
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "v1")
    found = resources(listed)
    pods = found["pods"]
    assert (pods["kind"], pods["namespaced"], pods["singularName"], pods["shortNames"]) == ("Pod", True, "pod", ["po"])
    assert pods["categories"] == ["all"]
    assert set(pods["verbs"]) == ALL_VERBS
    assert found["nodes"]["namespaced"] is False
    assert set(found["namespaces"]["verbs"]) == ALL_VERBS - {"deletecollection"}
    assert set(found["pods/status"]["verbs"]) == {"get", "patch", "update"}
    assert found["pods/binding"]["kind"] == "Binding"
    assert found["pods/eviction"]["kind"] == "Eviction"
    assert (found["pods/eviction"]["group"], found["pods/eviction"]["version"]) == ("policy", "v1")
    assert found["serviceaccounts/token"]["kind"] == "TokenRequest"
    assert set(found["bindings"]["verbs"]) == {"create"}


async def test_groups(api: Api) -> None:
    answer = await api.read("/apis")
    assert answer["kind"] == "APIGroupList"
    groups = {each["name"]: each for each in answer["groups"]}
    assert {
        "apps", "batch", "autoscaling", "policy", "rbac.authorization.k8s.io", "coordination.k8s.io", "storage.k8s.io",
        "networking.k8s.io", "apiextensions.k8s.io", "admissionregistration.k8s.io", "authentication.k8s.io",
        "authorization.k8s.io", "discovery.k8s.io", "events.k8s.io", "scheduling.k8s.io", "node.k8s.io",
        "certificates.k8s.io",
        "apiregistration.k8s.io",
    } <= set(groups)  # fmt: skip
    assert groups["apps"]["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
    # The one version of a kind that the embedded server leaves out (docs/reference/apiserver.md).
    served = ["v2", "v1"] if api.server.name == "real" else ["v2"]
    assert [each["version"] for each in groups["autoscaling"]["versions"]] == served


async def test_one_group_and_one_version(api: Api) -> None:
    group = await api.read("/apis/apps")
    assert (group["kind"], group["apiVersion"], group["name"]) == ("APIGroup", "v1", "apps")
    found = resources(await api.read("/apis/apps/v1"))
    assert {
        "deployments",
        "deployments/scale",
        "deployments/status",
        "statefulsets",
        "daemonsets",
        "replicasets",
    } <= set(found)
    scale = found["deployments/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    assert found["deployments"]["shortNames"] == ["deploy"]


async def test_unknown_groups_and_versions(api: Api) -> None:
    for path in ("/apis/nothing.example.com", "/apis/apps/v9", "/api/v2", "/apis/nothing.example.com/v1/things"):
        assert (await api.get(path)).status == 404, path


async def test_aggregated_groups(api: Api) -> None:
    reply = await api.get("/apis", accept=f"{AGGREGATED},application/json")
    answer = reply.expect(200)
    assert answer["kind"] == "APIGroupDiscoveryList"
    assert answer["apiVersion"] == "apidiscovery.k8s.io/v2"
    assert "as=APIGroupDiscoveryList" in reply.headers["Content-Type"]
    assert reply.headers["ETag"]
    groups = {each["metadata"]["name"]: each for each in answer["items"]}
    (version,) = groups["apps"]["versions"]
    assert (version["version"], version["freshness"]) == ("v1", "Current")
    found = {each["resource"]: each for each in version["resources"]}
    deployments = found["deployments"]
    assert (
        deployments["responseKind"] == {"group": "", "version": "", "kind": "Deployment"}
        or deployments["responseKind"]["kind"] == "Deployment"
    )
    assert deployments["scope"] == "Namespaced"
    assert deployments["singularResource"] == "deployment"
    subresources = {each["subresource"]: each for each in deployments["subresources"]}
    assert set(subresources) == {"scale", "status"}
    assert subresources["scale"]["responseKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}


async def test_aggregated_core(api: Api) -> None:
    answer = await api.read("/api", accept=AGGREGATED)
    (group,) = answer["items"]
    assert group["metadata"].get("name", "") == ""
    found = {each["resource"]: each for each in group["versions"][0]["resources"]}
    assert set(found["configmaps"]["verbs"]) == ALL_VERBS
    assert found["nodes"]["scope"] == "Cluster"


async def test_an_unchanged_document_is_not_sent_again(api: Api) -> None:
    first = await api.get("/apis", accept=AGGREGATED)
    again = await api.get("/apis", accept=AGGREGATED, headers={"If-None-Match": first.headers["ETag"]})
    assert again.status in (200, 304)
    if again.status == 304:
        assert again.body == b""
    else:
        assert again.headers["ETag"] != first.headers["ETag"], "the document changed in between"


async def test_version(api: Api) -> None:
    answer = await api.read("/version")
    assert answer["major"] == "1"
    assert answer["minor"].startswith("35")
    assert answer["gitVersion"].startswith("v1.35.")
    assert {"platform", "goVersion", "gitCommit", "buildDate"} <= set(answer)


async def test_health(api: Api) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        reply = await api.get(path)
        assert (reply.status, reply.body) == (200, b"ok"), path
    verbose = await api.get("/readyz", verbose="")
    assert verbose.body.endswith(b"readyz check passed\n")
