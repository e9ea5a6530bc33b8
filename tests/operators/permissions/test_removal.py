"""Taking rights away: bindings go first, rules last."""

from __future__ import annotations

from typing import Any

from tests.operators.permissions import podtable

from bedplate.api import meta, permissions
from bedplate.operators.permissions import desired, objects
from bedplate.operators.permissions.desired import Picture
from bedplate.operators.permissions.live import Live
from bedplate.operators.permissions.objects import ClusterFacts
from bedplate.operators.permissions.removal import Removal
from bedplate.runtime.cache import Cache

JOHN = podtable.resource("john", "john-restricted")


class Writer:
    """Remembers what is asked of it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def remove(self, kind: str, namespace: str, name: str) -> None:
        self.done.append(f"{kind}/{name}")

    async def release(self, namespace: str) -> None:
        self.done.append(f"released {namespace}")

    async def delete(self, ref: Any, name: str, **options: Any) -> None:
        self.done.append(f"deleted {name}")


def removal(writer: Any, *, created: bool, neighbours: tuple[Any, ...] = ()) -> Removal:
    annotations = {permissions.ANNOTATION_CREATED: "x"} if created else {}
    namespace = meta.PartialObject(metadata=meta.ObjectMeta(name="john-restricted", annotations=annotations))
    namespaces: Cache[meta.PartialObject] = Cache()
    namespaces.put(namespace, "1")
    picture = Picture(ClusterFacts(has_kyverno=True), neighbours, namespace)
    return Removal(writer, writer, Live({}, namespaces), JOHN, picture, lambda name: [JOHN])


def all_names(facts: ClusterFacts) -> list[str]:
    return [objects.identity(each) for each in desired.wanted(JOHN, Picture(facts, (), None))]


async def test_bindings_go_before_everything_else_and_the_rules_last() -> None:
    writer = Writer()
    await removal(writer, created=False).remove(all_names(ClusterFacts(has_kyverno=True)))
    kinds = [each.split("/")[0] for each in writer.done]
    last_binding = max(index for index, kind in enumerate(kinds) if kind.endswith("Binding"))
    assert last_binding < min(index for index, kind in enumerate(kinds) if not kind.endswith("Binding"))
    assert writer.done[-1] == "released john-restricted"


async def test_a_namespace_that_the_manager_created_is_deleted() -> None:
    writer = Writer()
    await removal(writer, created=True).remove(all_names(ClusterFacts()))
    assert writer.done[-1] == "deleted john-restricted"


async def test_what_another_resource_of_the_user_needs_stays() -> None:
    writer = Writer()
    other = podtable.resource("john", "dev")
    await removal(writer, created=True, neighbours=(other,)).remove(all_names(ClusterFacts()))
    assert "ClusterRole/john-nodes" not in writer.done
    assert "RoleBinding/john-restricted" in writer.done
