"""What other parts may hang into the API server: identities, permissions, admission, the behaviour of single kinds.

Only interfaces and the values they pass; the defaults do nothing. The pipeline calls `Authenticator` and `Authorizer`,
the write verbs call `Behaviour`, `Rules` and `AdmissionChain`, in this order:

    create   decode → Rules.default → Behaviour.prepare_create → AdmissionChain.mutate → Rules.default
             → Behaviour.validate + Rules.validate → AdmissionChain.validate → commit → Behaviour.after_commit
    update   the same with prepare_update; delete: before_delete → AdmissionChain.validate → commit → after_commit

Every hook refuses by raising `status.StatusError` (or, in `validate`, by returning problems).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bedplate.apiserver import kinds, status
from bedplate.apiserver.access import subjects
from bedplate.apiserver.kinds import Resource
from bedplate.apiserver.state import bodies, registry
from bedplate.core import clock as clocks
from bedplate.store import interface

__all__ = [
    "AdmissionChain",
    "Authenticator",
    "Authorizer",
    "Behaviour",
    "Call",
    "Client",
    "Object",
    "Rules",
    "Server",
    "SubresourceHandler",
    "Write",
]

Object = dict[str, Any]
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class Authenticator(Protocol):
    """Turns credentials into a user. Called once per connection (certificate) or token while its answer is cached."""

    def by_token(self, token: str) -> tuple[subjects.User, float] | None:
        """The token's user and the wall time (seconds) until which this answer may be cached; None when refused."""
        ...

    def by_certificate(self, subject: Mapping[str, Sequence[str]]) -> subjects.User | None:
        """The user of a verified client certificate: `subject` has commonName and organizationName."""
        ...


class Authorizer(Protocol):
    def authorize(self, user: subjects.User, attributes: subjects.Attributes) -> subjects.Decision: ...

    @property
    def generation(self) -> int:
        """Grows whenever an earlier answer may have become wrong, so that the pipeline can cache answers."""
        ...


class Client(Protocol):
    """How a hook reads and writes other objects: `loopback.Client`, where every method is described."""

    def acting_as(self, user: subjects.User, manager: str) -> Client: ...

    def resource(self, group: str, resource: str) -> kinds.Resource: ...

    def get(self, group: str, resource: str, namespace: str, name: str) -> Object | None: ...

    def list(self, group: str, resource: str, namespace: str = "") -> list[Object]: ...

    async def create(self, group: str, resource: str, obj: Object, *, dry_run: bool = False) -> Object: ...

    async def update(self, group: str, resource: str, obj: Object, *, subresource: str = "") -> Object: ...

    async def patch(
        self, group: str, resource: str, namespace: str, name: str, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> Object: ...

    async def delete(
        self, group: str, resource: str, namespace: str, name: str, options: Mapping[str, Any] | None = None
    ) -> Object: ...

    def watch(
        self, group: str, resource: str, *, existing: bool = True
    ) -> AbstractContextManager[AsyncIterator[bodies.Change]]: ...


class Server(Protocol):
    """What a hook may use of the server it belongs to: the part of `services.Services` that stands below the verbs."""

    kinds: kinds.Kinds
    registry: registry.Registry
    clock: clocks.Clock
    rules: Rules
    admission: AdmissionChain
    client: Client

    def behaviour(self, resource: Resource) -> Behaviour: ...


@dataclass(slots=True)
class Write:
    """One write on its way into the registry. Hooks read all of it and change `new` and `warnings`."""

    services: Server
    resource: kinds.Resource
    operation: Operation
    namespace: str
    name: str
    user: subjects.User
    subresource: str = ""
    dry_run: bool = False
    old: Object | None = None
    new: Object | None = None
    """The object in the version of `resource`; None for a deletion."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The CreateOptions, UpdateOptions, PatchOptions or DeleteOptions, as sent."""
    warnings: list[str] = field(default_factory=list)
    also: list[interface.Op] = field(default_factory=list)
    """Committed together with the object, or not at all."""
    rollbacks: list[Callable[[], None]] = field(default_factory=list)
    """Called when the write does not happen (refused, conflict, dry run): gives back what `prepare_*` has reserved."""

    @property
    def object(self) -> Object:
        """`new`, for hooks that only run when there is one."""
        assert self.new is not None
        return self.new


@dataclass(slots=True)
class Call:
    """A request to a subresource (or to a kind that is not stored) that a behaviour handles itself."""

    services: Server
    resource: kinds.Resource
    verb: str
    subresource: str
    namespace: str
    name: str
    user: subjects.User
    body: Object | None
    query: Mapping[str, str]
    dry_run: bool
    warnings: list[str]

    def existing(self) -> Object:
        """A fresh copy of the object that the call is about; 404 when it is absent."""
        obj = self.services.client.get(self.resource.group, self.resource.resource, self.namespace, self.name)
        if obj is None:
            raise status.not_found(self.resource, self.name)
        return obj


SubresourceHandler = Callable[[Call], Awaitable[tuple[int, Object]]]
"""Gives the HTTP status code and the object to answer with."""


class Behaviour:
    """What a kind does beyond being stored. Found by (group, resource); a kind overrides the hooks it needs."""

    create_on_update = False
    """PUT of an absent object creates it (Lease, Endpoints, Node, …)."""
    status_keeps_metadata = False
    """A status update leaves labels, annotations, finalizers and owners as they were."""
    has_graceful_deletion = False
    """Deletion first sets deletionTimestamp for `grace_seconds` (pods)."""

    @property
    def subresources(self) -> Mapping[str, SubresourceHandler]:
        """Handlers by subresource name; `status` and `scale` need none."""
        return {}

    @property
    def call(self) -> SubresourceHandler | None:
        """Set for kinds that are answered and not stored (TokenReview, SubjectAccessReview)."""
        return None

    def default(self, resource: kinds.Resource, obj: Object) -> None:
        """Defaults that no table can express (they depend on other fields); on create, update and patch."""

    def prepare_create(self, write: Write) -> None:
        """Set what the server owns on a new object: phase, allocated addresses (with a rollback), status removed."""

    def prepare_update(self, write: Write) -> None:
        """Carry over what a client may not change; `write.subresource` says which part is being written."""

    def validate(self, write: Write) -> list[status.FieldProblem]:
        """Faults of `write.new`; `write.old` is None on create."""
        return []

    async def before_delete(self, write: Write) -> None:
        """May refuse, or change other objects first. `write.old` is the object."""

    def grace_seconds(self, obj: Object, asked: int | None) -> int:
        """With `has_graceful_deletion`: the grace period of this deletion; 0 removes the object at once."""
        return 0

    def is_held(self, obj: Object) -> bool:
        """Whether a deleted object must stay though it has no metadata.finalizers (namespaces: spec.finalizers)."""
        return False

    def mark_deleted(self, obj: Object) -> None:
        """Called on an object that gets its deletionTimestamp and stays (namespaces: phase Terminating)."""

    def after_commit(self, change: bodies.Change) -> None:
        """Sees every committed change of the kind, in order, once at start for each existing object (as ADDED) too."""


class Rules(Protocol):
    """What is checked by the shape of a kind: facts for built-in kinds, schema and CEL for custom ones."""

    def default(self, resource: kinds.Resource, obj: Object) -> None: ...

    def prune(self, resource: kinds.Resource, obj: Object) -> list[str]:
        """Remove fields the kind does not have; their paths (`spec.foo`, `spec.list[0].foo`)."""
        ...

    def validate(
        self, resource: kinds.Resource, obj: Object, old: Object | None, subresource: str
    ) -> list[status.FieldProblem]: ...


class AdmissionChain(Protocol):
    """Admission plug-ins and webhooks."""

    def wants(self, write: Write) -> bool:
        """Whether anything would look at this write; False spares the rest."""
        ...

    async def mutate(self, write: Write) -> None: ...

    async def validate(self, write: Write) -> None: ...
