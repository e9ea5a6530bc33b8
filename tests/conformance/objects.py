"""Objects and paths the conformance cases write: the smallest valid ones, and a custom kind of one's own per test."""

from __future__ import annotations

import dataclasses
import json
import uuid
from typing import Any

from tests.conformance import http
from tests.waiting import until

Json = Any


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def core(namespace: str, resource: str, name: str = "", sub: str = "") -> str:
    return path("", "v1", namespace, resource, name, sub)


def apps(namespace: str, resource: str, name: str = "", sub: str = "") -> str:
    return path("apps", "v1", namespace, resource, name, sub)


def path(group: str, version: str, namespace: str, resource: str, name: str = "", sub: str = "") -> str:
    """The URL path of a collection, an object or a subresource; an empty namespace means cluster scope."""
    parts = ["api" if not group else f"apis/{group}", version]
    if namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (resource, name, sub) if part]
    return "/" + "/".join(parts)


def meta(name: str, **fields: Any) -> Json:
    return {"name": name, **fields}


def config_map(name: str, data: Json = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta(name, **metadata),
        "data": {} if data is None else data,
    }


def secret(name: str, **fields: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta(name), **fields}


def pod(name: str, *containers: str, **metadata: Any) -> Json:
    spec = {"containers": [{"name": each, "image": f"example/{each}:1"} for each in containers or ("main",)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta(name, **metadata), "spec": spec}


def node(name: str, **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta(name, **metadata), "spec": {}}


def service(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta(name),
        "spec": {"ports": [{"name": "http", "port": 80}], "selector": {"app": name}, **spec},
    }


def deployment(name: str, replicas: int = 0, **metadata: Any) -> Json:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta(name, **metadata),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod("x", "main")["spec"]},
        },
    }


def owner(held: Json, *, blocks: bool = False) -> Json:
    reference = {
        "apiVersion": held["apiVersion"],
        "kind": held["kind"],
        "name": held["metadata"]["name"],
        "uid": held["metadata"]["uid"],
    }
    return {**reference, "blockOwnerDeletion": True} if blocks else reference


@dataclasses.dataclass(frozen=True)
class CustomKind:
    """A custom kind installed for one test."""

    group: str
    plural: str
    kind: str
    version: str
    crd: Json

    @property
    def crd_path(self) -> str:
        return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{self.plural}.{self.group}"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def path(self, namespace: str, name: str = "", sub: str = "", version: str = "") -> str:
        return path(self.group, version or self.version, namespace, self.plural, name, sub)

    def new(self, name: str, version: str = "", **fields: Any) -> Json:
        api_version = f"{self.group}/{version or self.version}"
        return {"apiVersion": api_version, "kind": self.kind, "metadata": meta(name), **fields}


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OPEN_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def version_of(name: str, schema: Json, *, storage: bool = True, served: bool = True, **fields: Any) -> Json:
    return {"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": schema}, **fields}


def spec_schema(properties: Json, **more: Any) -> Json:
    """A structural schema whose `spec` has these properties; `more` are further keywords of the spec."""
    return {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties, **more}, "status": OPEN_SCHEMA},
    }


def crd(
    schema: Json = None,
    *,
    group: str = "",
    scope: str = "Namespaced",
    versions: list[Json] | None = None,
    **version: Any,
) -> Json:
    group = group or f"{unique('g')}.example.com"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta(f"widgets.{group}"),
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": versions or [version_of("v1", schema or OPEN_SCHEMA, **version)],
        },
    }


def custom_kind(definition: Json) -> CustomKind:
    spec = definition["spec"]
    return CustomKind(
        spec["group"], spec["names"]["plural"], spec["names"]["kind"], spec["versions"][0]["name"], definition
    )


_installed: dict[tuple[str, str], CustomKind] = {}


async def install(api: http.Api, schema: Json = None, *, fresh: bool = False, **options: Any) -> CustomKind:
    """A custom kind of this schema that answers in every served version.

    Tests share kinds of the same definition (a real server holds the first create of a new kind back for two seconds);
    a test that changes or deletes the definition asks for a fresh one.
    """
    definition = crd(schema, **options)
    key = (api.server.url, json.dumps({**definition["spec"], "group": options.get("group", "")}))
    if fresh or key not in _installed:
        kind = custom_kind(await api.create(CRDS, definition))
        await serving(api, kind)
        if fresh:
            return kind
        _installed[key] = kind
    return _installed[key]


async def serving(api: http.Api, kind: CustomKind) -> None:
    async def established() -> bool:
        conditions = (await api.read(kind.crd_path)).get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    await until(established, f"{kind.plural}.{kind.group} established")
    for version in kind.crd["spec"]["versions"]:
        if version["served"]:

            async def answers(name: str = version["name"]) -> bool:
                return (await api.get(kind.path("", version=name))).status == 200

            await until(answers, f"{kind.group}/{version['name']} served")


async def usable_namespace(api: http.Api, namespace: str) -> None:
    """Wait until pods may be created: the default service account is there."""

    async def has_account() -> bool:
        return (await api.get(core(namespace, "serviceaccounts", "default"))).status == 200

    await until(has_account, f"default service account in {namespace}")
