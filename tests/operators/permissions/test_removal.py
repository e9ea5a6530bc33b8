"""Taking rights away: bindings go first, rules last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.operators.permissions import podtable

from bedplate.api import meta, permissions
from bedplate.api.permissions import Binding, Subject
from bedplate.operators.permissions import desired, objects
from bedplate.operators.permissions.desired import Picture
from bedplate.operators.permissions.live import Live
from bedplate.operators.permissions.objects import ClusterFacts
from bedplate.operators.permissions.removal import Removal, StillBound, later_bindings
from bedplate.runtime.cache import Cache

JOHN = podtable.resource("john", "john-restricted")


class Writer:
    """Remembers what is asked of it."""

    def __init__(self, *bindings: Binding) -> None:
        self.done: list[str] = []
        self.bindings = bindings
        self.workloads: dict[Any, list[Any]] = {}

    async def list(self, ref: Any, namespace: str) -> Any:
        """The RoleBindings of the namespace, or its workloads."""
        return SimpleNamespace(items=list(self.bindings if ref.kind == "RoleBinding" else self.workloads.get(ref, ())))

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


NOW = datetime(2026, 5, 1, tzinfo=UTC)
DATED = msgspec.structs.replace(
    podtable.resource("john", "john-restricted", role="admin"),
    metadata=msgspec.structs.replace(JOHN.metadata, creation_timestamp=NOW),
)


def binding(*subjects: Subject, age_s: float = 0.0) -> Binding:
    """A RoleBinding that was made so many seconds before the resource."""
    metadata = meta.ObjectMeta(
        name="mine", namespace="john-restricted", creation_timestamp=NOW - timedelta(seconds=age_s)
    )
    return Binding(metadata=metadata, subjects=subjects)


@pytest.mark.parametrize(
    ("subject", "is_theirs"),
    [
        (Subject(kind="User", name="john"), True),
        (Subject(kind="User", name="jane"), False),
        (Subject(kind="ServiceAccount", name="robot", namespace="john-restricted"), True),
        (Subject(kind="ServiceAccount", name="robot", namespace="ci"), False),
        (Subject(kind="Group", name="system:authenticated"), True),
        (Subject(kind="Group", name="system:serviceaccounts:john-restricted"), True),
        (Subject(kind="Group", name="system:serviceaccounts:ci"), False),
        (Subject(kind="Group", name="john"), False),
    ],
)
def test_a_binding_counts_if_the_user_can_use_it(subject: Subject, is_theirs: bool) -> None:
    assert later_bindings(DATED, "john-restricted", [binding(subject)]) == (["mine"] if is_theirs else [])
    assert later_bindings(DATED, "john-restricted", [binding(subject, age_s=1)]) == []


def test_accounts_of_a_namespace_count_only_for_who_may_bind_roles() -> None:
    editor = msgspec.structs.replace(DATED, spec=podtable.resource("john", "john-restricted", role="edit").spec)
    account = Subject(kind="ServiceAccount", name="robot", namespace="john-restricted")
    assert later_bindings(editor, "john-restricted", [binding(account)]) == []
    assert later_bindings(editor, "john-restricted", [binding(Subject(kind="User", name="john"))]) == ["mine"]


async def test_the_rules_stay_while_the_user_is_bound_and_everything_else_goes() -> None:
    writer = Writer(binding(Subject(kind="User", name="john")))
    with pytest.raises(StillBound, match="RoleBinding john-restricted/mine still gives john"):
        await removal(writer, created=False).remove(all_names(ClusterFacts()))
    assert "RoleBinding/john-restricted" in writer.done
    assert "released john-restricted" not in writer.done


async def test_bindings_of_other_resources_do_not_count() -> None:
    other = podtable.resource("jane", "john-restricted")
    (name,) = [each["metadata"]["name"] for each in objects.objects(other, ClusterFacts()) if _is_edit(each)]
    theirs = binding(Subject(kind="ServiceAccount", name="jane", namespace="john-restricted"))
    named = msgspec.structs.replace(theirs, metadata=msgspec.structs.replace(theirs.metadata, name=name))
    writer = Writer(named)
    await removal(writer, created=False, neighbours=(other,)).remove(all_names(ClusterFacts()))
    assert writer.done[-1] == "released john-restricted"


def _is_edit(obj: Any) -> bool:
    return bool(obj["kind"] == "RoleBinding" and obj["roleRef"]["name"] == "edit")
