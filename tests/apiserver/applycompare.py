"""One object written step by step on a real kube-apiserver and by our pure functions, compared after every step.

The real server also serves as the one that defaults and normalises (by a dry run), since that is not what is compared.
`Comparison.calls` collects what our functions were given and what they answered, once the real server has agreed.
"""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

from tests.apiserver import applyworld
from tests.apiserver.applyworld import Step, World
from tests.apiserver.realserver import RealServer

from bedplate.apiserver import facts, kinds
from bedplate.apiserver.merge import apply, managed, patches, strategic
from bedplate.apiserver.shape import typegraph
from bedplate.apiserver.status import StatusError

NOW = "2099-01-01T00:00:00Z"
"""later than any write of the real server, so that our entry is the newest, as its own is."""

_names = (f"obj-{number}" for number in itertools.count())


def manager_for(world: World) -> managed.FieldManager:
    table = facts.load()
    if not world.is_custom:
        return manager_of(next(found for found in table.resources() if is_of(found, world)))
    node = typegraph.from_schema(applyworld.WIDGET_SCHEMA, table.object_meta, is_resource=True)
    reset = {sub: managed.reset_fields(applyworld.GROUP, "widgets", sub, has_status=True) for sub in ("", "status")}
    return managed.FieldManager(node, api_version=world.api_version, kind=world.kind, is_custom=True, reset=reset)


def is_of(resource: kinds.Resource, world: World) -> bool:
    return (resource.api_version, resource.kind) == (world.api_version, world.kind)


def manager_of(resource: kinds.Resource) -> managed.FieldManager:
    has_status = "status" in resource.subresources
    reset = {
        sub: managed.reset_fields(resource.group, resource.resource, sub, has_status=has_status)
        for sub in ("", *resource.subresources)
    }
    return managed.FieldManager(resource.type, api_version=resource.api_version, kind=resource.kind, reset=reset)


class Comparison:
    """One object on the real server, and what we say it should be after each step."""

    def __init__(self, server: RealServer, world: World, fields: managed.FieldManager) -> None:
        self.server, self.world, self.fields = server, world, fields
        self.name = next(_names)
        self.live: dict[str, Any] | None = None
        self.calls: list[dict[str, Any]] = []

    @property
    def path(self) -> str:
        return f"{self.world.path}/{self.name}"

    def take(self, step: Step) -> None:
        verb = step.verb.rpartition("-")[2]
        subresource = "status" if step.verb.startswith("status-") else ""
        if subresource and self.live is None:
            return
        body = self.complete(step.body) if verb in ("create", "apply") and not subresource else step.body
        getattr(self, f"_{verb}")(step, body, subresource)

    def complete(self, part: dict[str, Any]) -> dict[str, Any]:
        """A part made an object; the first one needs all that the kind demands."""
        body = {**copy.deepcopy(part), "apiVersion": self.world.api_version, "kind": self.world.kind}
        body["metadata"] = {**body.get("metadata", {}), "name": self.name, "namespace": "default"}
        if self.live is None:
            for key, value in self.world.base.items():
                body[key] = {**body.get(key, {}), **copy.deepcopy(value)}
        return body

    # --- verbs ----------------------------------------------------------------------------------------------------

    def _create(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        code, new = self.server.call("POST", self.world.path, body, dryRun="All", fieldManager="x")
        if code == 422:
            return
        assert code == 201, new
        decoded = self.decoded(new, body)
        mine = self.fields.on_create(decoded, step.manager, NOW)
        self.note("on_create", new=decoded, manager=step.manager)
        code, answer = self.server.call("POST", self.world.path, body, fieldManager=step.manager)
        assert code == 201, answer
        self.settle(answer, mine, None)
        self.agreed(mine)

    def _put(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        if self.live is None:
            return
        self._update(step, patches.merge_patch(self.live, body), subresource, None)

    def _merge(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        if self.live is None:
            return
        self._update(step, patches.merge_patch(self.live, body), subresource, ("merge-patch+json", body))

    def _json(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        if self.live is None:
            return
        content, operations = "json-patch+json", body["operations"]
        try:
            mine = patches.json_patch(self.live, operations)
        except StatusError as err:
            self.note("json_patch", live=self.live, patch=operations)
            code, answer = self.server.call("PATCH", self.path, operations, content=content, fieldManager=step.manager)
            self.refused(code, answer, err)
            return
        self.note("json_patch", live=self.live, patch=operations)
        self.agreed(mine)
        self._update(step, mine, subresource, (content, operations))

    def _strategic(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        if self.live is None:
            return
        content = "strategic-merge-patch+json"
        before = copy.deepcopy((self.live, body))
        try:
            mine = strategic.strategic_merge(self.live, body, self.fields.node)
        except StatusError as err:
            self.note("strategic_merge", live=self.live, patch=body)
            code, answer = self.server.call("PATCH", self.path, body, content=content, fieldManager=step.manager)
            self.refused(code, answer, err)
            return
        assert (self.live, body) == before
        self.note("strategic_merge", live=self.live, patch=body)
        self.agreed(mine)
        self._update(step, mine, subresource, (content, body))

    def _update(self, step: Step, wanted: dict[str, Any], subresource: str, patch: tuple[str, Any] | None) -> None:
        assert self.live is not None
        path = self.path + (f"/{subresource}" if subresource else "")
        code, new = self.server.call("PUT", path, wanted, dryRun="All", fieldManager="x")
        if code != 200:
            return
        restored = self.restored(new, wanted)
        mine = self.fields.on_update(self.live, restored, step.manager, NOW, subresource)
        self.note("on_update", live=self.live, new=restored, manager=step.manager, subresource=subresource)
        if patch is None:
            code, answer = self.server.call("PUT", path, wanted, fieldManager=step.manager)
        else:
            code, answer = self.server.call("PATCH", path, patch[1], content=patch[0], fieldManager=step.manager)
        assert code == 200, answer
        self.settle(answer, mine, new)
        self.agreed(mine)

    def _apply(self, step: Step, body: dict[str, Any], subresource: str) -> None:
        if subresource:
            body = {**body, "apiVersion": self.world.api_version, "kind": self.world.kind}
            body["metadata"] = {"name": self.name, "namespace": "default"}
        path = self.path + (f"/{subresource}" if subresource else "")
        before = copy.deepcopy((self.live, body))
        try:
            mine: dict[str, Any] | StatusError = apply.apply(
                self.fields, self.live, body, step.manager, force=step.force, time=NOW, subresource=subresource
            )
        except StatusError as err:
            mine = err
        assert (self.live, body) == before
        self.note("apply", live=self.live, config=body, manager=step.manager, force=step.force, subresource=subresource)
        new = None
        if isinstance(mine, dict):
            if self.live is None:
                code, new = self.server.call("POST", self.world.path, mine, dryRun="All", fieldManager="x")
            else:
                code, new = self.server.call("PUT", path, mine, dryRun="All", fieldManager="x")
        query = {"fieldManager": step.manager, "force": str(step.force).lower()}
        code, answer = self.server.call("PATCH", path, body, content="apply-patch+yaml", **query)
        if isinstance(mine, StatusError):
            self.refused(code, answer, mine)
            return
        if code == 422:
            self.calls.pop()
            return
        assert code in (200, 201), (answer, mine)
        self.settle(answer, mine["metadata"].get("managedFields"), new)
        self.agreed(mine)

    # --- comparison -----------------------------------------------------------------------------------------------

    def decoded(self, new: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        """The object of a dry run as it was before the server filled in what nobody asked for."""
        spec = {
            key: value
            for key, value in new.get("spec", {}).items()
            if key not in self.world.allocated or key in body["spec"]
        }
        metadata = {key: value for key, value in new["metadata"].items() if key != "managedFields"}
        return {**new, "metadata": metadata, **({"spec": spec} if "spec" in new else {})}

    def restored(self, new: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        """The object of a dry run with the owners that the request carried."""
        metadata = {key: value for key, value in new["metadata"].items() if key != "managedFields"}
        if "managedFields" in wanted["metadata"]:
            metadata["managedFields"] = wanted["metadata"]["managedFields"]
        return {**new, "metadata": metadata}

    def settle(self, real: dict[str, Any], mine: list[Any] | None, new: dict[str, Any] | None) -> None:
        theirs = real["metadata"].get("managedFields")
        assert owners(mine) == owners(theirs)
        if not self.world.is_custom:
            assert [spelt(entry) for entry in by_identity(mine)] == [spelt(entry) for entry in by_identity(theirs)]
        if new is not None:
            assert content(new) == content(real)
        self.live = real

    def refused(self, code: int, answer: dict[str, Any], mine: StatusError) -> None:
        assert (code, answer.get("reason", "")) == (mine.code, mine.reason), answer
        assert causes(answer) == causes(mine.document())
        if len(causes(answer)) < 2:
            assert answer["message"] == mine.message
        self.calls[-1] |= {"code": code, "message": mine.message, "causes": causes(answer)}

    def note(self, function: str, **arguments: Any) -> None:
        self.calls.append({"function": function, **copy.deepcopy(arguments)})

    def agreed(self, result: Any) -> None:
        self.calls[-1]["result"] = copy.deepcopy(result)


def by_identity(entries: list[Any] | None) -> list[Any]:
    return sorted(entries or [], key=managed.identify)


def owners(entries: list[Any] | None) -> dict[Any, Any]:
    """The entries without their times, but with whether they have one."""
    return {managed.identify(entry): {**entry, "time": "time" in entry} for entry in entries or []}


def spelt(entry: dict[str, Any]) -> str:
    """The set as it is written, so that the order counts."""
    return json.dumps(entry["fieldsV1"])


def content(obj: dict[str, Any]) -> dict[str, Any]:
    volatile = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
    allocated = ("clusterIP", "clusterIPs")
    spec = {key: value for key, value in obj.get("spec", {}).items() if key not in allocated}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in volatile}
    return {**obj, "metadata": metadata, "spec": spec}


def causes(status: dict[str, Any]) -> list[Any]:
    found = status.get("details", {}).get("causes", [])
    return sorted((cause["field"], cause["message"], cause["reason"]) for cause in found)


def compare(
    server: RealServer, world: World, sequence: list[Step], *, may_be_invalid: bool = True
) -> list[dict[str, Any]]:
    """Play the sequence on both sides; the calls that were made and agreed on."""
    comparison = Comparison(server, world, manager_for(world))
    for step in sequence:
        before = len(comparison.calls)
        comparison.take(step)
        assert may_be_invalid or len(comparison.calls) > before, f"the real server refuses {step}"
    return comparison.calls
