"""CustomResourceDefinitions themselves: conditions, discovery, versions, refusals, deletion."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import Api, Json
from tests.conformance.objects import CRDS, OPEN_SCHEMA, crd, install, spec_schema, version_of
from tests.waiting import until


async def groups(api: Api) -> set[str]:
    return {group["name"] for group in (await api.read("/apis"))["groups"]}


async def test_a_new_definition_is_accepted_and_established(api: Api) -> None:
    kind = await install(api)
    held = await api.read(kind.crd_path)
    conditions = {each["type"]: each for each in held["status"]["conditions"]}
    assert conditions["NamesAccepted"]["status"] == "True"
    assert conditions["NamesAccepted"]["reason"] == "NoConflicts"
    assert conditions["Established"]["status"] == "True"
    assert conditions["Established"]["reason"] == "InitialNamesAccepted"
    assert held["status"]["acceptedNames"] == held["spec"]["names"]
    assert held["status"]["storedVersions"] == ["v1"]
    assert held["spec"]["conversion"] == {"strategy": "None"}


async def test_singular_and_list_kind_are_filled_in(api: Api) -> None:
    definition = crd()
    definition["spec"]["names"] = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]}
    made = await api.create(CRDS, definition)
    assert made["spec"]["names"] == {
        "plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "singular": "widget", "listKind": "WidgetList",
    }  # fmt: skip


async def test_discovery_shows_the_kind_and_then_no_more(api: Api) -> None:
    definition = crd(subresources={"status": {}})
    definition["spec"]["names"].update(shortNames=["wd"], categories=["all"])
    kind = objects.custom_kind(await api.create(CRDS, definition))
    await objects.serving(api, kind)

    async def discovered() -> Json:
        reply = await api.get(f"/apis/{kind.group}/v1")
        return reply.json if reply.status == 200 and reply.json["resources"] else None

    listed = await until(discovered, "resource list of the group")
    resources = {each["name"]: each for each in listed["resources"]}
    assert set(resources) == {"widgets", "widgets/status"}
    assert resources["widgets"]["shortNames"] == ["wd"]
    assert resources["widgets"]["categories"] == ["all"]
    assert resources["widgets"]["singularName"] == "widget"
    assert resources["widgets"]["namespaced"] is True
    assert set(resources["widgets"]["verbs"]) == {
        "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
    }  # fmt: skip
    assert set(resources["widgets/status"]["verbs"]) == {"get", "patch", "update"}

    async def in_groups() -> bool:
        return kind.group in await groups(api)

    await until(in_groups, "group in /apis")
    (await api.delete(kind.crd_path)).expect(200)

    async def vanished() -> bool:
        return kind.group not in await groups(api) and (await api.get(kind.path(""))).status == 404

    await until(vanished, "group gone from discovery")


async def test_deleting_the_definition_deletes_its_objects(api: Api, ns: str) -> None:
    kind = await install(api, fresh=True)
    await api.create(kind.path(ns), kind.new("w"))
    (await api.delete(kind.crd_path)).expect(200)

    async def gone() -> bool:
        return (await api.get(kind.crd_path)).status == 404

    await until(gone, "definition gone")
    again = objects.custom_kind(await api.create(CRDS, crd(group=kind.group)))
    await objects.serving(api, again)
    assert await api.names(again.path(ns)) == []


async def test_a_finalizer_on_an_object_holds_the_definition(api: Api, ns: str) -> None:
    kind = await install(api, fresh=True)
    body = kind.new("w")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await api.create(kind.path(ns), body)
    (await api.delete(kind.crd_path)).expect(200)

    async def terminating() -> bool:
        held = await api.read(kind.crd_path)
        marked = "deletionTimestamp" in (await api.read(kind.path(ns, "w")))["metadata"]
        return marked and any(
            each["type"] == "Terminating" and each["status"] == "True" for each in held["status"]["conditions"]
        )

    await until(terminating, "definition terminating")
    (await api.post(kind.path(ns), kind.new("new"))).fails(403, "Forbidden")
    (await api.patch(kind.path(ns, "w"), {"metadata": {"finalizers": None}})).expect(200)

    async def gone() -> bool:
        return (await api.get(kind.crd_path)).status == 404

    await until(gone, "definition gone after its last object")


async def test_two_versions_without_conversion_share_their_objects(api: Api, ns: str) -> None:
    versions = [version_of("v2", OPEN_SCHEMA), version_of("v1", OPEN_SCHEMA, storage=False)]
    kind = await install(api, versions=versions)
    await api.create(kind.path(ns, version="v1"), kind.new("w", version="v1", spec={"a": 1}))
    through_v2 = await api.read(kind.path(ns, "w", version="v2"))
    assert through_v2["apiVersion"] == f"{kind.group}/v2"
    assert through_v2["spec"] == {"a": 1}
    listed = await api.read(kind.path(ns, version="v1"))
    assert listed["apiVersion"] == f"{kind.group}/v1"
    assert listed["items"][0]["apiVersion"] == f"{kind.group}/v1"
    (await api.post(kind.path(ns, version="v1"), kind.new("x", version="v2"))).fails(400, "BadRequest")


async def test_a_version_not_served_is_not_found(api: Api, ns: str) -> None:
    versions = [version_of("v2", OPEN_SCHEMA), version_of("v1", OPEN_SCHEMA, storage=False, served=False)]
    kind = await install(api, versions=versions)
    (await api.get(kind.path(ns, version="v1"))).expect(404)
    (await api.get(kind.path(ns, version="v9"))).expect(404)


async def test_each_version_prunes_by_its_own_schema(api: Api, ns: str) -> None:
    versions = [
        version_of("v2", spec_schema({"old": {"type": "string"}, "new": {"type": "string"}})),
        version_of("v1", spec_schema({"old": {"type": "string"}}), storage=False),
    ]
    kind = await install(api, versions=versions)
    await api.create(kind.path(ns), kind.new("w", spec={"old": "1", "new": "2"}))
    assert (await api.read(kind.path(ns, "w", version="v1")))["spec"] == {"old": "1"}
    assert (await api.read(kind.path(ns, "w")))["spec"] == {"old": "1", "new": "2"}


async def test_versions_in_discovery_come_newest_and_most_stable_first(api: Api) -> None:
    names = ["v1alpha1", "v2", "v1beta1", "v10", "v1"]
    versions = [version_of(name, OPEN_SCHEMA, storage=name == "v1") for name in names]
    kind = await install(api, versions=versions)

    async def ordered() -> Json:
        reply = await api.get(f"/apis/{kind.group}")
        return reply.json if reply.status == 200 and len(reply.json["versions"]) == len(names) else None

    group = await until(ordered, "five versions in discovery")
    assert [each["version"] for each in group["versions"]] == ["v10", "v2", "v1", "v1beta1", "v1alpha1"]
    assert group["preferredVersion"]["version"] == "v10"


async def test_a_cluster_scoped_kind_has_no_namespaces(api: Api, ns: str) -> None:
    kind = await install(api, scope="Cluster")
    name = objects.unique("w")
    made = await api.create(kind.path(""), kind.new(name))
    assert "namespace" not in made["metadata"]
    (await api.get(kind.path(ns, name))).expect(404)


async def test_a_conflicting_name_is_not_accepted(api: Api) -> None:
    kind = await install(api, fresh=True)
    second = crd(group=kind.group)
    second["metadata"]["name"] = f"gadgets.{kind.group}"
    second["spec"]["names"] = {"plural": "gadgets", "kind": "Widget"}
    made = await api.create(CRDS, second)
    path = f"{CRDS}/{made['metadata']['name']}"

    async def refused() -> Json:
        conditions = (await api.read(path)).get("status", {}).get("conditions") or []
        found = {each["type"]: each for each in conditions}
        return found if found.get("NamesAccepted", {}).get("status") == "False" else None

    conditions = await until(refused, "names refused")
    assert conditions["NamesAccepted"]["reason"] in ("KindConflict", "ListKindConflict")
    assert conditions["Established"]["status"] == "False"
    (await api.get(f"/apis/{kind.group}/v1/gadgets")).expect(404)


async def test_broken_definitions_are_refused(api: Api) -> None:
    wrong_name = crd()
    wrong_name["metadata"]["name"] = "other." + wrong_name["spec"]["group"]
    no_storage = crd(versions=[version_of("v1", OPEN_SCHEMA, storage=False)])
    no_schema = crd(versions=[{"name": "v1", "served": True, "storage": True}])
    not_structural = crd({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}})
    bad_default = crd(spec_schema({"a": {"type": "string", "default": 5}}))
    bad_list = crd(spec_schema({"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map"}}))
    two_storages = crd(versions=[version_of("v1", OPEN_SCHEMA), version_of("v2", OPEN_SCHEMA)])
    reasons = {}
    for label, body in {
        "metadata.name": wrong_name,
        "spec.versions": no_storage,
        "spec.versions[0].schema.openAPIV3Schema": no_schema,
        "spec.validation.openAPIV3Schema.properties[spec].type": not_structural,
        "spec.validation.openAPIV3Schema.properties[spec].properties[a].default": bad_default,
        "spec.validation.openAPIV3Schema.properties[spec].properties[a].x-kubernetes-list-map-keys": bad_list,
        "spec.versions ": two_storages,
    }.items():
        status = (await api.post(CRDS, body)).fails(422, "Invalid")
        reasons[label.strip()] = {cause["field"] for cause in status["details"]["causes"]}
    for label, fields in reasons.items():
        assert any(label.split(".")[-1] in field for field in fields), (label, fields)


async def test_scope_and_group_are_immutable_once_established(api: Api) -> None:
    kind = await install(api, fresh=True)
    status = (await api.patch(kind.crd_path, {"spec": {"scope": "Cluster"}})).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.scope"


async def test_stored_versions_remember_and_hold_a_version(api: Api) -> None:
    kind = await install(api, fresh=True)
    definition = await api.read(kind.crd_path)
    definition["spec"]["versions"][0]["storage"] = False
    definition["spec"]["versions"].append(version_of("v2", OPEN_SCHEMA))
    (await api.put(kind.crd_path, definition)).expect(200)

    async def both() -> bool:
        return bool((await api.read(kind.crd_path))["status"]["storedVersions"] == ["v1", "v2"])

    await until(both, "two stored versions")
    definition = await api.read(kind.crd_path)
    del definition["spec"]["versions"][0]
    status = (await api.put(kind.crd_path, definition)).fails(422, "Invalid")
    assert "storedVersions" in status["message"]
