"""Random writes by several managers for the comparison with a real kube-apiserver: the kinds, the values, the steps.

Values come from small pools, so that managers meet on the same fields. A step is plain data (verb, manager, body), so a
failing sequence prints as what it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

GROUP = "apply.example.com"
MANAGERS = ("alice", "bob", "carol")


@dataclasses.dataclass(frozen=True)
class World:
    """A kind under test: where it lives, a complete object, parts that may be merged into it, strategic parts."""

    api_version: str
    kind: str
    path: str
    base: Mapping[str, Any]
    part: st.SearchStrategy[dict[str, Any]]
    strategic: st.SearchStrategy[dict[str, Any]] | None = None
    status: st.SearchStrategy[dict[str, Any]] | None = None
    allocated: tuple[str, ...] = ()
    """spec fields that the server fills in after the owners were recorded."""
    is_custom: bool = False


def maybe(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A map with any of these members."""
    return st.fixed_dictionaries({}, optional=members)


def items(key: str, names: tuple[Any, ...], **members: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """A list-map: distinct keys, any order."""
    item = st.fixed_dictionaries({key: st.sampled_from(names)}, optional=members)
    return st.lists(item, max_size=3, unique_by=lambda found: found[key])


words = st.sampled_from(("1", "2", "x y"))
counts = st.integers(0, 3)
flags = st.booleans()
pairs = st.dictionaries(st.sampled_from(("a", "b", "c")), words, max_size=3)
metadata = maybe(
    labels=pairs,
    annotations=st.dictionaries(st.sampled_from(("n/a", "n/b")), words, max_size=2),
    finalizers=st.lists(st.sampled_from(("f.io/a", "f.io/b", "f.io/c")), unique=True, max_size=3),
)
nulls: st.SearchStrategy[None] = st.none()

# --- ConfigMap -------------------------------------------------------------------------------------------------------

CONFIG_MAP = World(
    api_version="v1",
    kind="ConfigMap",
    path="/api/v1/namespaces/default/configmaps",
    base={"data": {"a": "1"}},
    part=maybe(metadata=metadata, data=pairs),
    strategic=maybe(
        metadata=maybe(
            labels=st.dictionaries(st.sampled_from(("a", "b")), words | nulls, max_size=2),
            # The real server adds and deletes in random order, so the two never name the same one here.
            finalizers=st.lists(st.sampled_from(("f.io/a", "f.io/c")), unique=True, max_size=2),
            **{"$deleteFromPrimitiveList/finalizers": st.just(["f.io/b"])},
        ),
        data=st.dictionaries(st.sampled_from(("a", "b", "c")), words | nulls, max_size=3)
        | st.just({"$patch": "replace", "c": "9"})
        | st.just({"$patch": "delete"})
        | st.just({"$retainKeys": ["a", "b"], "a": "5"}),
    ),
)

# --- Deployment ------------------------------------------------------------------------------------------------------

containers = items(
    "name",
    ("main", "side"),
    image=st.sampled_from(("i:1", "i:2")),
    args=st.lists(words, max_size=2),
    env=items("name", ("A", "B", "C"), value=words),
    ports=st.lists(
        st.fixed_dictionaries(
            {"containerPort": st.sampled_from((80, 443, 8080))},
            optional={"protocol": st.sampled_from(("TCP", "UDP")), "name": st.sampled_from(("p", "q"))},
        ),
        max_size=2,
        unique_by=lambda port: (port["containerPort"], port.get("protocol", "TCP")),
    ),
    resources=maybe(limits=st.dictionaries(st.sampled_from(("cpu", "memory")), st.sampled_from(("1", "100m")))),
)
pod_spec = maybe(
    containers=containers,
    nodeSelector=pairs,
    tolerations=st.lists(st.fixed_dictionaries({"key": words, "operator": st.just("Exists")}), max_size=2),
    hostNetwork=flags,
    terminationGracePeriodSeconds=counts,
)
strategies = st.sampled_from(
    (
        {"type": "Recreate"},
        {"type": "RollingUpdate"},
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        {"rollingUpdate": {"maxUnavailable": "20%"}},
    )
)
special_containers = st.lists(
    st.one_of(
        st.fixed_dictionaries({"name": st.sampled_from(("main", "side"))}, optional={"image": st.just("i:3")}),
        st.just({"name": "side", "$patch": "delete"}),
        st.just({"name": "side", "image": "i:4", "ports": [{"containerPort": 80}], "env": [{"name": "Z"}]}),
        st.just({"name": "main", "ports": [{"containerPort": 80, "$patch": "delete"}]}),
        st.just({"name": "main", "env": [{"$patch": "replace"}, {"name": "R", "value": "1"}]}),
    ),
    max_size=2,
)
orders = st.permutations([{"name": "main"}, {"name": "side"}])
DEPLOYMENT = World(
    api_version="apps/v1",
    kind="Deployment",
    path="/apis/apps/v1/namespaces/default/deployments",
    base={
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "main", "image": "i:1"}]},
            },
        }
    },
    part=maybe(
        metadata=metadata,
        spec=maybe(
            replicas=counts,
            minReadySeconds=counts,
            paused=flags,
            strategy=strategies,
            template=maybe(spec=pod_spec, metadata=maybe(annotations=pairs)),
        ),
    ),
    strategic=maybe(
        spec=maybe(
            replicas=counts | nulls,
            strategy=strategies
            | st.just({"$retainKeys": ["type"], "type": "Recreate"})
            | st.just({"$patch": "replace", "type": "Recreate"}),
            template=maybe(
                spec=maybe(
                    containers=special_containers,
                    tolerations=st.lists(st.fixed_dictionaries({"operator": st.just("Exists")}), max_size=1),
                    **{"$setElementOrder/containers": orders},
                )
            ),
        )
    ),
    status=maybe(
        replicas=counts,
        observedGeneration=counts,
        conditions=st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(("Available", "Progressing")), "status": st.sampled_from(("True", "False"))}
            ),
            max_size=2,
            unique_by=lambda condition: condition["type"],
        ),
    ),
)

# --- Service ---------------------------------------------------------------------------------------------------------

service_ports = st.lists(
    st.fixed_dictionaries(
        {"port": st.sampled_from((80, 443)), "name": st.sampled_from(("w", "s"))},
        optional={"protocol": st.sampled_from(("TCP", "UDP")), "targetPort": st.sampled_from((8080, "http"))},
    ),
    min_size=1,
    max_size=2,
    unique_by=(lambda port: port["name"], lambda port: (port["port"], port.get("protocol", "TCP"))),
)
SERVICE = World(
    api_version="v1",
    kind="Service",
    path="/api/v1/namespaces/default/services",
    base={"spec": {"ports": [{"port": 80, "name": "w"}], "selector": {"app": "x"}}},
    part=maybe(
        metadata=metadata,
        spec=maybe(
            ports=service_ports,
            selector=pairs,
            sessionAffinity=st.sampled_from(("None", "ClientIP")),
            externalIPs=st.just([]),
        ),
    ),
    strategic=maybe(
        spec=maybe(
            ports=st.lists(
                st.sampled_from(
                    (
                        {"port": 80, "targetPort": 1},
                        {"port": 443, "name": "s"},
                        {"port": 80, "$patch": "delete"},
                        {"port": 443, "$patch": "delete"},
                    )
                ),
                max_size=2,
            ),
            selector=st.dictionaries(st.sampled_from(("a", "app")), words | nulls, max_size=2),
        )
    ),
    allocated=("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"),
)

# --- a custom kind with every type of list and map -------------------------------------------------------------------

STRING = {"type": "string"}
WIDGET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "number": {"type": "integer"},
                "text": {"type": "string", "nullable": True},
                "defaulted": {"type": "string", "default": "d"},
                "either": {"x-kubernetes-int-or-string": True},
                "names": {"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
                "numbers": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
                "whole": {"type": "array", "x-kubernetes-list-type": "atomic", "items": STRING},
                "plain": {"type": "array", "items": {"type": "object", "properties": {"a": STRING}}},
                "labels": {"type": "object", "additionalProperties": STRING},
                "fixed": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "additionalProperties": STRING,
                },
                "nested": {
                    "type": "object",
                    "properties": {"x": STRING, "deep": {"type": "object", "properties": {"y": {"type": "integer"}}}},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "things": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "side"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": STRING,
                            "side": {"type": "integer", "default": 1},
                            "value": STRING,
                            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
                        },
                    },
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": STRING,
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {"type": "object", "required": ["type"], "properties": {"type": STRING, "why": STRING}},
                },
            },
        },
    },
}
WIDGET_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
            }
        ],
    },
}
free_values = st.recursive(
    st.sampled_from((1, True, "s", 2.5)),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("p", "q")), inner, max_size=2),
    max_leaves=4,
)
WIDGET = World(
    api_version=f"{GROUP}/v1",
    kind="Widget",
    path=f"/apis/{GROUP}/v1/namespaces/default/widgets",
    base={"spec": {"number": 1}},
    part=maybe(
        metadata=metadata,
        spec=maybe(
            number=counts,
            text=words | nulls,
            defaulted=words,
            either=counts | words,
            names=st.lists(st.sampled_from(("a", "b", "c", "<d>")), unique=True, max_size=3),
            numbers=st.lists(st.sampled_from((1, 5, 10, 40)), unique=True, max_size=3),
            whole=st.lists(words, max_size=2),
            plain=st.lists(maybe(a=words), max_size=2),
            labels=pairs,
            fixed=pairs,
            nested=maybe(x=words, deep=maybe(y=counts)),
            free=st.dictionaries(st.sampled_from(("u", "v")), free_values, max_size=2),
            things=st.lists(
                st.fixed_dictionaries(
                    {"name": st.sampled_from(("n", "m"))},
                    optional={
                        "side": st.sampled_from((1, 2, 10)),
                        "value": words,
                        "tags": st.lists(st.sampled_from(("t", "u")), unique=True, max_size=2),
                    },
                ),
                max_size=3,
                unique_by=lambda thing: (thing["name"], thing.get("side", 1)),
            ),
        ),
    ),
    status=maybe(
        phase=words,
        conditions=items("type", ("Ready", "Old"), why=words),
    ),
    is_custom=True,
)

WORLDS = (CONFIG_MAP, DEPLOYMENT, SERVICE, WIDGET)


# --- steps -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Step:
    verb: str
    """create, put, merge, strategic, apply; with `status-` in front through the subresource."""
    manager: str
    body: dict[str, Any]
    force: bool = False


def with_nulls(part: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """A merge patch: some members of a part become null."""

    @st.composite
    def patch(draw: st.DrawFn) -> dict[str, Any]:
        def thin(value: Any, depth: int) -> Any:
            if not isinstance(value, dict):
                return value
            return {
                key: None if depth > 0 and draw(st.integers(0, 3)) == 0 else thin(item, depth + 1)
                for key, item in value.items()
            }

        found: dict[str, Any] = thin(draw(part), 0)
        return found

    return patch()


def given_owners(world: World) -> st.SearchStrategy[dict[str, Any]]:
    """Writes that set managedFields themselves: the two ways to forget them, and lists valid and not."""
    entry = {
        "manager": "dave",
        "operation": "Update",
        "apiVersion": world.api_version,
        "time": "2020-01-01T01:00:00+01:00",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:b": {}, "f:a": {".": {}}}}, "x:y": {}, "f:data": {"f:a": None}},
    }
    lists: list[Any] = [
        [],
        [{}],
        None,
        [entry],
        [{**entry, "operation": "Apply"}],
        [{**entry, "operation": "Sing"}],
        [{**entry, "fieldsV1": {"nonsense": {}}}],
        [{**entry, "apiVersion": "gone.example.com/v1"}],
        [{**entry, "subresource": "status"}],
        [entry, {**entry, "manager": "eve", "fieldsV1": {}}],
        [{key: value for key, value in entry.items() if key != "fieldsV1"}],
    ]
    return st.sampled_from(lists).map(lambda found: {"metadata": {"managedFields": found}})


def operations(world: World) -> st.SearchStrategy[list[dict[str, Any]]]:
    """JSON patches, most of which apply."""
    place = "/spec/free" if world.is_custom else "/metadata/annotations"
    paths = st.sampled_from([place, f"{place}/u", f"{place}/v", f"{place}/u/p", f"{place}/u/0", f"{place}/v/-"])
    values = free_values if world.is_custom else words
    whole = st.just({"u": "1"}) | st.just({"u": "1", "v": "2"})
    return st.lists(
        st.one_of(
            st.fixed_dictionaries({"op": st.just("add"), "path": st.just(place), "value": whole}),
            st.fixed_dictionaries({"op": st.sampled_from(("add", "replace", "test")), "path": paths, "value": values}),
            st.fixed_dictionaries({"op": st.just("remove"), "path": paths}),
            st.fixed_dictionaries({"op": st.sampled_from(("move", "copy")), "path": paths, "from": paths}),
        ),
        min_size=1,
        max_size=3,
    )


def steps(world: World) -> st.SearchStrategy[list[Step]]:
    managers = st.sampled_from(MANAGERS)
    choices = [
        st.builds(Step, st.just("apply"), managers, world.part, st.booleans()),
        st.builds(Step, st.just("apply"), managers, world.part, st.booleans()),
        st.builds(Step, st.just("merge"), managers, with_nulls(world.part)),
        st.builds(Step, st.just("put"), managers, with_nulls(world.part)),
    ]
    if world.strategic is not None:
        choices.append(st.builds(Step, st.just("strategic"), managers, world.strategic))
    if world.status is not None:
        status = world.status.map(lambda found: {"status": found})
        choices.append(st.builds(Step, st.just("status-apply"), managers, status, st.booleans()))
        choices.append(st.builds(Step, st.just("status-merge"), managers, status))
    choices.append(st.builds(Step, st.sampled_from(("put", "merge")), managers, given_owners(world)))
    choices.append(st.builds(Step, st.just("json"), managers, st.fixed_dictionaries({"operations": operations(world)})))
    first = st.builds(Step, st.sampled_from(("create", "apply")), managers, world.part)
    return st.tuples(first, st.lists(st.one_of(choices), min_size=2, max_size=7)).map(lambda both: [both[0], *both[1]])
