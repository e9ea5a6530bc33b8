"""Named sequences of writes. They are played on the real server, and what it agreed to is kept in `data/apply.json`."""

from __future__ import annotations

from typing import Any

from tests.apiserver.applyworld import CONFIG_MAP, DEPLOYMENT, SERVICE, WIDGET, Step, World

KUBECTL_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def create(who: str, **body: Any) -> Step:
    return Step("create", who, body)


def apply(who: str, *, force: bool = False, **body: Any) -> Step:
    return Step("apply", who, body, force)


def merge(who: str, **body: Any) -> Step:
    return Step("merge", who, body)


def put(who: str, **body: Any) -> Step:
    return Step("put", who, body)


def strategic(who: str, **body: Any) -> Step:
    return Step("strategic", who, body)


def operations(who: str, *found: dict[str, Any]) -> Step:
    return Step("json", who, {"operations": list(found)})


def containers(*found: dict[str, Any]) -> dict[str, Any]:
    return {"template": {"spec": {"containers": list(found)}}}


def whole(spec: dict[str, Any]) -> dict[str, Any]:
    """A deployment's spec with all that the kind demands, for an applier that must not let go of it."""
    base = DEPLOYMENT.base["spec"]
    template = {**base["template"], **spec.get("template", {})}
    return {**base, **spec, "template": template}


def labels(**found: str | None) -> dict[str, Any]:
    return {"labels": found}


FORGET = {"managedFields": [{}]}
MAIN = {"name": "main", "image": "i:1"}
SIDE = {"name": "side", "image": "i:1"}

SCENARIOS: dict[str, tuple[World, list[Step]]] = {
    "a creator owns what is there, also by default": (DEPLOYMENT, [create("alice", spec={"replicas": 2})]),
    "a status sent with a new object belongs to nobody": (WIDGET, [create("alice", status={"phase": "1"})]),
    "a writer takes what it changes": (
        CONFIG_MAP,
        [create("alice", data={"b": "1"}), merge("bob", data={"b": "2"}), merge("alice", data={"b": "3"})],
    ),
    "removed fields leave everybody": (
        CONFIG_MAP,
        [create("alice", data={"b": "1"}), apply("bob", data={"b": "1"}), merge("carol", data={"b": None})],
    ),
    "a write without effect changes no owner": (
        CONFIG_MAP,
        [create("alice"), put("bob"), merge("bob", data={"a": "1"})],
    ),
    "equal values are shared without conflict": (
        CONFIG_MAP,
        [apply("alice", data={"b": "1"}), apply("bob", data={"b": "1"}), apply("carol", data={"b": "2"})],
    ),
    "a shared field stays until the last owner lets go": (
        CONFIG_MAP,
        [apply("alice", data={"b": "1"}), apply("bob", data={"b": "1"}), apply("alice"), apply("bob", data={})],
    ),
    "a conflict names field and owner": (
        DEPLOYMENT,
        [
            create("alice", spec={"replicas": 1}),
            apply("bob", spec={"replicas": 2, "paused": True, **containers({"name": "main", "image": "i:2"})}),
            apply("bob", spec={"replicas": 2}),
        ],
    ),
    "force takes over": (
        DEPLOYMENT,
        [
            apply("alice", spec={"replicas": 1}),
            apply("bob", force=True, spec={"replicas": 2}),
            apply("alice", spec=whole({})),
            apply("bob"),
        ],
    ),
    "an applier's item keeps what others put into it": (
        DEPLOYMENT,
        [
            apply("alice"),
            apply("alice", spec=whole(containers(MAIN, SIDE))),
            apply("bob", spec=containers({**SIDE, "env": [{"name": "A", "value": "1"}]})),
            apply("alice", spec=whole(containers(MAIN))),
            apply("bob"),
        ],
    ),
    "ports are told apart by number and protocol, TCP where none is given": (
        DEPLOYMENT,
        [
            apply("alice"),
            apply("alice", spec=whole(containers({**MAIN, "ports": [{"containerPort": 80}, {"containerPort": 8}]}))),
            apply("bob", spec=containers({"name": "main", "ports": [{"containerPort": 80, "protocol": "UDP"}]})),
            apply("alice", spec=whole(containers({**MAIN, "ports": [{"containerPort": 443}]}))),
        ],
    ),
    "items keep their place and follow the configuration where both have them": (
        WIDGET,
        [
            apply("alice", spec={"things": [{"name": name} for name in "abcd"]}),
            apply("bob", spec={"things": [{"name": name} for name in "xdby"]}),
            apply("alice", spec={"things": [{"name": name} for name in "ca"]}),
        ],
    ),
    "a field goes with the last of its members": (
        WIDGET,
        [
            apply("alice", spec={"nested": {"deep": {"y": 1}}, "labels": {"a": "1"}, "things": [{"name": "n"}]}),
            apply("bob", spec={"labels": {"b": "1"}}),
            apply("alice"),
            apply("bob"),
        ],
    ),
    "duplicate items in a configuration are refused": (
        DEPLOYMENT,
        [create("alice"), apply("bob", spec=containers(MAIN, MAIN))],
    ),
    "unknown fields in a configuration are refused": (
        DEPLOYMENT,
        [create("alice"), apply("bob", spec={"foo": 1}), apply("bob", spec={"replicas": "x"})],
    ),
    "a null in a configuration is owned, and does not empty a map": (
        WIDGET,
        [create("alice", spec={"labels": {"a": "1"}}), apply("bob", force=True, spec={"labels": None, "text": None})],
    ),
    "atomic lists and maps are owned whole": (
        WIDGET,
        [
            apply("alice", spec={"whole": ["1"], "fixed": {"a": "1"}}),
            apply("bob", spec={"whole": ["1", "2"], "fixed": {"b": "1"}}),
            apply("bob", force=True, spec={"whole": ["1", "2"], "fixed": {"b": "1"}}),
            apply("bob"),
        ],
    ),
    "sets are owned item by item": (
        WIDGET,
        [
            apply("alice", spec={"names": ["b", "<a>"], "numbers": [5, 40]}),
            apply("bob", spec={"names": ["c", "b"], "numbers": [10, 5]}),
            apply("alice", spec={"names": ["<a>"]}),
        ],
    ),
    "untyped content is owned field by field, its lists whole": (
        WIDGET,
        [
            apply("alice", spec={"free": {"u": {"p": 1, "q": [1, {"a": 2}]}, "v": True}}),
            merge("bob", spec={"free": {"u": {"q": [2]}, "v": {"x": 1}}}),
            merge("carol", spec={"free": {"u": "text", "v": 1}}),
        ],
    ),
    "the status is owned through its subresource": (
        WIDGET,
        [
            create("alice"),
            Step("status-merge", "bob", {"status": {"phase": "1", "conditions": [{"type": "Ready", "why": "x"}]}}),
            Step("status-apply", "carol", {"status": {"conditions": [{"type": "Ready", "why": "y"}]}}),
            Step("status-apply", "carol", {"status": {"conditions": [{"type": "Ready", "why": "y"}]}}, True),
            merge("alice", status={"phase": "2"}, spec={"number": 3}),
        ],
    ),
    "a deployment's status leaves labels alone": (
        DEPLOYMENT,
        [create("alice"), Step("status-merge", "bob", {"metadata": labels(a="1"), "status": {"replicas": 1}})],
    ),
    "owners can be forgotten, and return with the first apply": (
        CONFIG_MAP,
        [
            create("alice", data={"b": "1"}),
            merge("bob", metadata=FORGET, data={"c": "1"}),
            merge("bob", data={"c": "2"}),
            apply("carol", data={"b": "2"}),
            apply("carol", force=True, data={"b": "2"}),
        ],
    ),
    "an empty list of owners forgets those of built-in kinds only": (
        CONFIG_MAP,
        [create("alice"), put("bob", metadata={"managedFields": []})],
    ),
    "an empty list of owners does nothing for custom kinds": (
        WIDGET,
        [create("alice"), put("bob", metadata={"managedFields": []})],
    ),
    "the oldest of more than ten updaters are merged": (
        CONFIG_MAP,
        [create("m00"), *(merge(f"m{number:02}", data={f"k{number}": "1"}) for number in range(1, 14))],
    ),
    "kubectl takes over from client-side apply without conflict": (
        CONFIG_MAP,
        [
            create(
                "kubectl-client-side-apply",
                metadata={
                    "annotations": {
                        KUBECTL_ANNOTATION: '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{},'
                        '"name":"x","namespace":"default"},"data":{"a":"1","b":"1"}}\n'
                    }
                },
                data={"b": "1"},
            ),
            apply("kubectl", data={"a": "2", "b": "2"}),
            merge("bob", data={"a": "3"}),
            apply("kubectl", data={"a": "4", "b": "5"}),
        ],
    ),
    "service ports": (
        SERVICE,
        [
            create("alice"),
            apply("bob", spec={"ports": [{"port": 443, "name": "s"}]}),
            strategic("carol", spec={"ports": [{"port": 80, "$patch": "delete"}]}),
            merge("carol", spec={"selector": {"app": "y"}}),
        ],
    ),
    "finalizers merge in strategic patches": (
        CONFIG_MAP,
        [
            create("alice", metadata={"finalizers": ["f.io/a", "f.io/b"]}),
            strategic("bob", metadata={"finalizers": ["f.io/c"]}),
            strategic("bob", metadata={"$deleteFromPrimitiveList/finalizers": ["f.io/a"]}),
        ],
    ),
    "strategic merge of containers, order, directives": (
        DEPLOYMENT,
        [
            create("alice"),
            strategic("bob", spec=containers({"name": "side", "image": "i:2"})),
            strategic(
                "bob",
                spec={
                    "template": {
                        "spec": {
                            "$setElementOrder/containers": [{"name": "side"}, {"name": "main"}],
                            "containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}],
                        }
                    }
                },
            ),
            strategic("bob", spec=containers({"name": "main", "env": [{"$patch": "replace"}, {"name": "B"}]})),
            strategic("bob", spec=containers({"name": "side", "$patch": "delete"})),
            strategic("bob", spec={"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}),
            strategic("bob", spec={"replicas": None}),
        ],
    ),
    "strategic patches that are refused": (
        DEPLOYMENT,
        [
            create("alice"),
            strategic("bob", spec=containers({"image": "x"})),
            strategic("bob", spec=containers({"name": "main", "$patch": "merge"})),
            strategic("bob", spec=containers({"name": "main", "$patch": "zzz"})),
            strategic("bob", spec={"$patch": "merge"}),
            strategic("bob", spec={"$retainKeys": 3}),
            strategic("bob", spec={"$retainKeys": ["replicas"], "paused": True}),
            strategic("bob", spec={"template": {"spec": {"$setElementOrder/containers": "x"}}}),
            strategic("bob", spec={"template": {"spec": {"$setElementOrder": []}}}),
            strategic("bob", spec={"template": {"spec": {"$setElementOrder/zz": []}}}),
            strategic(
                "bob",
                spec={
                    "template": {
                        "spec": {"$setElementOrder/containers": [{"name": "side"}], "containers": [{"name": "main"}]}
                    }
                },
            ),
            strategic("bob", metadata={"$deleteFromPrimitiveList": ["x"]}),
        ],
    ),
    "JSON patches": (
        CONFIG_MAP,
        [
            create("alice"),
            operations("bob", {"op": "test", "path": "/data/a", "value": "2"}),
            operations("bob", {"op": "add", "path": "/data/b", "value": "2"}, {"op": "remove", "path": "/data/a"}),
            operations("carol", {"op": "move", "from": "/data/b", "path": "/data/c"}),
            operations("carol", {"op": "replace", "path": "/data/new", "value": "1"}),
        ],
    ),
}
