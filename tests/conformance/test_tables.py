"""Answers as tables and as metadata only."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import PARTIAL, PARTIAL_LIST, TABLE, Api, Json
from tests.conformance.objects import apps, config_map, core, deployment, install, pod, service, spec_schema


def columns(table: Json) -> list[str]:
    return [each["name"] for each in table["columnDefinitions"]]


def row(table: Json, name: str) -> dict[str, Json]:
    """Cells of one row by column name."""
    for each in table["rows"]:
        if each["object"]["metadata"]["name"] == name:
            return dict(zip(columns(table), each["cells"], strict=True))
    raise AssertionError(f"no row {name} in {table['rows']}")


async def test_a_list_of_pods(api: Api, ns: str) -> None:
    await objects.usable_namespace(api, ns)
    await api.create(core(ns, "pods"), pod("p", "one", "two"))
    table = await api.read(core(ns, "pods"), accept=TABLE)
    assert table["kind"] == "Table"
    assert table["apiVersion"] == "meta.k8s.io/v1"
    assert columns(table) == [
        "Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates",
    ]  # fmt: skip
    cells = row(table, "p")
    assert (cells["Name"], cells["Ready"], cells["Status"]) == ("p", "0/2", "Pending")
    assert str(cells["Restarts"]) == "0"
    assert (cells["IP"], cells["Node"]) == ("<none>", "<none>")
    priorities = {each["name"]: each["priority"] for each in table["columnDefinitions"]}
    assert priorities["Name"] == 0
    assert priorities["IP"] == 1
    assert int(table["metadata"]["resourceVersion"]) > 0


async def test_a_running_pod(api: Api, ns: str) -> None:
    await objects.usable_namespace(api, ns)
    await api.create(core(ns, "pods"), {**pod("p"), "spec": {**pod("p")["spec"], "nodeName": "n1"}})
    status = {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "containerStatuses": [
            {
                "name": "main", "ready": True, "restartCount": 3, "image": "i", "imageID": "x",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
        ],
    }  # fmt: skip
    (await api.patch(core(ns, "pods", "p", "status"), {"status": status})).expect(200)
    cells = row(await api.read(core(ns, "pods"), accept=TABLE), "p")
    assert (cells["Ready"], cells["Status"], cells["IP"], cells["Node"]) == ("1/1", "Running", "10.1.2.3", "n1")
    assert str(cells["Restarts"]).startswith("3")


async def test_one_object_is_a_table_of_one_row(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a", {"k": "1", "l": "2"}))
    table = await api.read(core(ns, "configmaps", "a"), accept=TABLE)
    assert columns(table) == ["Name", "Data", "Age"]
    assert [each["cells"][:2] for each in table["rows"]] == [["a", 2]]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert table["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1"


async def test_include_object(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    whole = await api.read(core(ns, "configmaps", "a"), accept=TABLE, includeObject="Object")
    assert whole["rows"][0]["object"]["data"] == {"k": "1"}
    none = await api.read(core(ns, "configmaps", "a"), accept=TABLE, includeObject="None")
    assert none["rows"][0]["object"] is None
    (await api.get(core(ns, "configmaps", "a"), accept=TABLE, includeObject="Some")).fails(400, "BadRequest")


async def test_nodes(api: Api) -> None:
    name = objects.unique("node")
    labels = {"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/worker": ""}
    body = objects.node(name, labels=labels)
    body["spec"]["unschedulable"] = True
    await api.create("/api/v1/nodes", body)
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
        "nodeInfo": {
            "kubeletVersion": "v1.35.4", "osImage": "Debian", "kernelVersion": "6.1", "machineID": "", "systemUUID": "",
            "containerRuntimeVersion": "containerd://1.7", "bootID": "", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        },
    }  # fmt: skip
    (await api.patch(f"/api/v1/nodes/{name}/status", {"status": status})).expect(200)
    table = await api.read(f"/api/v1/nodes/{name}", accept=TABLE)
    assert columns(table) == [
        "Name", "Status", "Roles", "Age", "Version", "Internal-IP", "External-IP", "OS-Image", "Kernel-Version",
        "Container-Runtime",
    ]  # fmt: skip
    cells = row(table, name)
    assert cells["Status"] == "Ready,SchedulingDisabled"
    assert cells["Roles"] == "control-plane,worker"
    assert (cells["Version"], cells["Internal-IP"], cells["External-IP"]) == ("v1.35.4", "10.0.0.9", "<none>")


async def test_services(api: Api, ns: str) -> None:
    ports = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    made = await api.create(core(ns, "services"), service("s", ports=ports))
    await api.create(core(ns, "services"), service("headless", clusterIP="None"))
    await api.create(
        core(ns, "services"), {**service("x"), "spec": {"type": "ExternalName", "externalName": "e.example.com"}}
    )
    table = await api.read(core(ns, "services"), accept=TABLE)
    assert columns(table) == ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"]
    cells = row(table, "s")
    assert (cells["Type"], cells["Cluster-IP"]) == ("ClusterIP", made["spec"]["clusterIP"])
    assert (cells["External-IP"], cells["Port(s)"], cells["Selector"]) == ("<none>", "80/TCP,53/UDP", "app=s")
    assert row(table, "headless")["Cluster-IP"] == "None"
    assert (row(table, "x")["Cluster-IP"], row(table, "x")["External-IP"]) == ("<none>", "e.example.com")


async def test_deployments(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d", 0))
    table = await api.read(apps(ns, "deployments"), accept=TABLE)
    assert columns(table) == ["Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"]
    cells = row(table, "d")
    assert (cells["Ready"], cells["Up-to-date"], cells["Available"]) == ("0/0", 0, 0)
    assert (cells["Containers"], cells["Images"], cells["Selector"]) == ("main", "example/main:1", "app=d")


async def test_printer_columns_of_a_custom_kind(api: Api, ns: str) -> None:
    extra = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1, "description": "its color"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Born", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "All", "type": "string", "jsonPath": ".spec.list[*].name"},
    ]
    kind = await install(api, additionalPrinterColumns=extra)
    status = {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}
    spec = {"size": 3, "color": "red", "list": [{"name": "x"}, {"name": "y"}]}
    await api.create(kind.path(ns), kind.new("w", spec=spec, status=status))
    await api.create(kind.path(ns), kind.new("bare"))
    table = await api.read(kind.path(ns), accept=TABLE)
    assert columns(table) == ["Name", "Size", "Color", "Ready", "Born", "All"]
    cells = row(table, "w")
    assert (cells["Size"], cells["Color"], cells["Ready"]) == (3, "red", "True")
    assert cells["All"] == "x"
    assert cells["Born"].endswith("s")
    bare = row(table, "bare")
    assert (bare["Size"], bare["Color"], bare["Ready"]) == (None, None, None)
    definitions = {each["name"]: each for each in table["columnDefinitions"]}
    assert definitions["Color"]["priority"] == 1
    assert definitions["Color"]["description"] == "its color"
    assert definitions["Name"]["format"] == "name"


async def test_a_custom_kind_without_columns_has_name_and_age(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema({"a": {"type": "string"}}))
    await api.create(kind.path(ns), kind.new("w"))
    assert columns(await api.read(kind.path(ns), accept=TABLE)) == ["Name", "Age"]


async def test_a_watch_as_tables(api: Api, ns: str) -> None:
    start = (await api.read(core(ns, "secrets")))["metadata"]["resourceVersion"]
    async with api.watch(core(ns, "secrets"), accept=TABLE, resourceVersion=start) as watch:
        await api.create(core(ns, "secrets"), objects.secret("a"))
        await api.create(core(ns, "secrets"), objects.secret("b"))
        first, second = await watch.next(), await watch.next()
    assert first["type"] == "ADDED"
    assert first["object"]["kind"] == "Table"
    assert columns(first["object"]) == ["Name", "Type", "Data", "Age"]
    assert first["object"]["rows"][0]["cells"][:3] == ["a", "Opaque", 0]
    assert not second["object"]["columnDefinitions"], "columns come once"
    assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_a_kind_without_its_own_columns(api: Api) -> None:
    table = await api.read("/api/v1/namespaces/default", accept=TABLE)
    assert columns(table) == ["Name", "Status", "Age"]
    assert table["rows"][0]["cells"][:2] == ["default", "Active"]


async def test_pages_of_a_table(api: Api, ns: str) -> None:
    for name in "abc":
        await api.create(core(ns, "secrets"), objects.secret(name))
    first = await api.read(core(ns, "secrets"), accept=TABLE, limit=2)
    assert [each["cells"][0] for each in first["rows"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    rest = await api.read(core(ns, "secrets"), accept=TABLE, limit=2, **{"continue": first["metadata"]["continue"]})
    assert [each["cells"][0] for each in rest["rows"]] == ["c"]


async def test_metadata_only(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}, labels={"x": "y"}))
    one = await api.read(core(ns, "configmaps", "a"), accept=PARTIAL)
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert set(one) == {"kind", "apiVersion", "metadata"}
    assert one["metadata"]["labels"] == {"x": "y"}
    many = await api.read(core(ns, "configmaps"), accept=PARTIAL_LIST, labelSelector="x=y")
    assert many["kind"] == "PartialObjectMetadataList"
    assert [set(item) - {"kind", "apiVersion"} for item in many["items"]] == [{"metadata"}]


async def test_a_table_when_accepted_second_or_with_fallback(api: Api, ns: str) -> None:
    accept = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    assert (await api.read(core(ns, "configmaps"), accept=accept))["kind"] == "Table"
    assert (await api.read("/api/v1", accept=accept))["kind"] == "APIResourceList"
    assert (await api.read("/version", accept=accept))["major"] == "1"


async def test_errors_stay_statuses(api: Api, ns: str) -> None:
    (await api.get(core(ns, "configmaps", "none"), accept=TABLE)).fails(404, "NotFound")
