"""The objects that an answer is made of: read from a file, or from a cluster with one list of each kind.

In: YAML or JSON as `kubectl get -o yaml` prints it, or a client. Out: `Objects`. Objects of other
kinds are ignored. No decision is made here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from bedplate.api import permissions
from bedplate.api.resources import NAMESPACES, SERVICE_ACCOUNTS, RawObject, ResourceRef, custom
from bedplate.core import errors, yamls
from bedplate.core.tasks import TaskGroup
from bedplate.kube import Client

__all__ = ["KINDS", "Objects", "documents", "from_cluster", "from_text"]

PRIORITY_CLASSES = custom("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
RUNTIME_CLASSES = custom("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
KINDS: tuple[ResourceRef[RawObject], ...] = tuple(
    ref.raw()
    for ref in (
        NAMESPACES,
        SERVICE_ACCOUNTS,
        permissions.ROLES_REF,
        permissions.ROLE_BINDINGS,
        permissions.CLUSTER_ROLES,
        permissions.CLUSTER_ROLE_BINDINGS,
        permissions.USERS,
        permissions.CLAIMS,
        permissions.PERSISTENT_VOLUMES,
        permissions.STORAGE_CLASSES,
        PRIORITY_CLASSES,
        RUNTIME_CLASSES,
    )
)
_BY_KIND = {(ref.group, ref.kind): ref.plural for ref in KINDS}


class Objects(msgspec.Struct, frozen=True):
    """Objects by the plural of their kind, each as the server has it."""

    by_plural: Mapping[str, tuple[RawObject, ...]]

    def of(self, plural: str, namespace: str | None = None) -> tuple[RawObject, ...]:
        """All of a kind; of one namespace where it is given."""
        every = self.by_plural.get(plural, ())
        if namespace is None:
            return every
        return tuple(obj for obj in every if obj["metadata"].get("namespace") == namespace)

    def has(self, plural: str) -> bool:
        """Whether it is known which objects of a kind there are, be it none."""
        return plural in self.by_plural

    def find(self, plural: str, name: str, namespace: str | None = None) -> RawObject | None:
        """One object, or None."""
        return next((obj for obj in self.of(plural, namespace) if obj["metadata"].get("name") == name), None)


def documents(text: str, source: str) -> Iterator[RawObject]:
    """Every object of a file: documents one after the other, lists taken apart."""
    try:
        for part in _split(text):
            document = yamls.load(part)
            if document is not None:
                yield from _items(document, source)
    except (yaml.YAMLError, ValueError) as err:
        raise errors.Invalid(f"{source} cannot be read: {err}") from err


def _split(text: str) -> Iterator[str]:
    """The documents of a file as text: `---` at the beginning of a line separates them."""
    lines: list[str] = []
    for line in text.splitlines():
        if line == "---" or line.startswith("--- "):
            yield "\n".join(lines)
            lines = [line[3:]]
        else:
            lines.append(line)
    yield "\n".join(lines)


def _items(document: Any, source: str) -> Iterator[RawObject]:
    if isinstance(document, list):
        for item in document:
            yield from _items(item, source)
    elif not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise errors.Invalid(f"{source} has a document that is not a Kubernetes object (kind is missing)")
    elif document["kind"].endswith("List") and isinstance(document.get("items"), list):
        kind = document["kind"].removesuffix("List")
        for item in document["items"]:
            named = {"apiVersion": document.get("apiVersion"), "kind": kind} if kind and isinstance(item, dict) else {}
            yield from _items({**named, **item} if isinstance(item, dict) else item, source)
    else:
        yield document


def from_text(text: str, source: str) -> Objects:
    """The objects of a file."""
    by_plural: dict[str, list[RawObject]] = {}
    for obj in documents(text, source):
        group = str(obj.get("apiVersion") or "").rpartition("/")[0]
        plural = _BY_KIND.get((group, obj["kind"]))
        if plural is None:
            continue
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise errors.Invalid(f"{source} has a {obj['kind']} without metadata.name")
        by_plural.setdefault(plural, []).append(obj)
    return Objects({plural: tuple(objects) for plural, objects in by_plural.items()})


async def from_cluster(client: Client) -> Objects:
    """The objects of a cluster. A cluster without a permission manager has no permission objects."""
    by_plural = {}

    async def read(ref: ResourceRef[RawObject]) -> None:
        try:
            by_plural[ref.plural] = tuple((await client.list(ref)).items)
        except errors.BedplateError:
            if ref.group != permissions.GROUP or await _is_served(client, ref):
                raise

    try:
        async with TaskGroup() as group:
            for ref in KINDS:
                group.create_task(read(ref))
    except BaseExceptionGroup as several:
        error = errors.only(several)
        if error is None:
            raise
        raise error from several
    return Objects(by_plural)


async def _is_served(client: Client, ref: ResourceRef[RawObject]) -> bool:
    """Whether the server has the kind; an answer that does not say so counts as yes."""
    from bedplate.api.resources import CRDS

    try:
        await client.get(CRDS, ref.qualified)
    except errors.NotFound:
        return False
    except errors.BedplateError:
        return True
    return True
