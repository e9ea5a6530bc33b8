"""What every Kubernetes object shares: metadata, owners, conditions, list metadata, Status.

In: JSON of an API server, decoded by msgspec. Out: frozen values. The models declare only fields that this project
reads and skip all others, so a model must never be written back whole: writes are patches or server-side apply.

Structs here stay out of the garbage collector (`gc=False`): they are trees made by a decoder and can hold no cycle.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

__all__ = [
    "Condition",
    "ListEnvelope",
    "ListMeta",
    "Model",
    "Object",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "PartialObject",
    "Status",
    "StatusCause",
    "StatusDetails",
    "field",
    "find_condition",
]

T = TypeVar("T")


def field(name: str, default: Any = "") -> Any:
    """A field whose JSON name is not the camel case of its Python name, such as `podCIDR`."""
    return msgspec.field(name=name, default=default)


class Model(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of every lean model: immutable, camel case on the wire, unknown fields skipped."""


class OwnerReference(Model, frozen=True):
    """An object this one belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Model, frozen=True):
    """Metadata without managedFields, which no controller of ours reads and which would be half of a Node's memory."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def is_deleting(self) -> bool:
        """Deletion was asked for; finalizers or a grace period hold the object."""
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    def label(self, key: str, default: str = "") -> str:
        """The value of a label."""
        return self.labels.get(key, default)

    def annotation(self, key: str, default: str = "") -> str:
        """The value of an annotation."""
        return self.annotations.get(key, default)


class Object(Model, frozen=True):
    """Base of every kind. Items of a typed list carry neither `apiVersion` nor `kind`: their resource says it."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace


class PartialObject(Object, frozen=True):
    """Any object, its metadata alone."""


class ListMeta(Model, frozen=True):
    """Where a list stands in history and where its next page begins."""

    resource_version: str = ""
    continue_token: str = field("continue")
    remaining_item_count: int | None = None


class ListEnvelope(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A list answer. Its fields are required, so that an answer of something else is never read as an empty list."""

    kind: str
    metadata: ListMeta
    items: list[T] | None


class Condition(Model, frozen=True):
    """metav1.Condition, and the older per-kind conditions that share its first fields."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None

    @property
    def is_true(self) -> bool:
        return self.status == "True"


def find_condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    """The condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == type_), None)


class ObjectReference(Model, frozen=True):
    """A pointer to any object, as Events carry it."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class StatusCause(Model, frozen=True):
    """One fault in a request."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Model, frozen=True):
    """Which object an error is about. `kind` holds the resource's plural name, as the API server sends it."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(Model, frozen=True):
    """What an API server answers when it does not answer with an object."""

    kind: str = ""
    api_version: str = ""
    metadata: ListMeta = ListMeta()
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None
