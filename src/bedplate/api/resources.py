"""Which resource lives where: descriptors that tell a client the path, the kind and the model.

In: constants below, `custom()` for CRDs, discovery for anything else. Out: paths for requests and the
types to decode into. A descriptor with the model `dict` is in raw mode: plain dictionaries, as the server sent them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, overload
from urllib.parse import quote

from bedplate.api import auth, coordination, core, discovery, meta

__all__ = [
    "ALL",
    "CONFIG_MAPS",
    "CRDS",
    "DEPLOYMENTS",
    "ENDPOINT_SLICES",
    "EVENTS",
    "EVENTS_V1",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "SECRETS",
    "SELF_SUBJECT_ACCESS_REVIEWS",
    "SERVICES",
    "SERVICE_ACCOUNTS",
    "SUBJECT_ACCESS_REVIEWS",
    "TOKEN_REVIEWS",
    "RawObject",
    "ResourceRef",
    "custom",
]

RawObject = dict[str, Any]
T = TypeVar("T")
M = TypeVar("M")


@dataclass(frozen=True)
class ResourceRef(Generic[T]):
    """A resource (group, version, plural), the kind of its objects, and the model to decode them into."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    model: type[T]

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`nodes`, or `leases.coordination.k8s.io`: as kubectl names it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        return self.qualified

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """The request path. No namespace on a namespaced resource means all of them, which only a collection can."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace:
            if not self.namespaced:
                raise ValueError(f"{self.qualified} has no namespaces, but {namespace!r} was given")
            root += f"/namespaces/{_segment(namespace)}"
        elif self.namespaced and name:
            raise ValueError(f"{self.qualified} {name!r} needs a namespace")
        root += f"/{self.plural}"
        if name:
            root += f"/{_segment(name)}"
        return f"{root}/{subresource}" if subresource else root

    def with_model(self, model: type[M]) -> ResourceRef[M]:
        """The same resource decoded into another model."""
        return replace(self, model=model)  # type: ignore[return-value, arg-type]

    def raw(self) -> ResourceRef[RawObject]:
        """The same resource in raw mode."""
        return self.with_model(dict)

    def partial(self) -> ResourceRef[meta.PartialObject]:
        """The same resource, metadata alone."""
        return self.with_model(meta.PartialObject)


def _segment(text: str) -> str:
    # The API server's own rule: a name must not change the path. RBAC names may hold colons.
    if text in (".", "..") or "/" in text or "%" in text:
        raise ValueError(f"{text!r} cannot be part of a request path")
    return quote(text, safe=":@!$&'()*+,;=~-._")


@overload
def custom(group: str, version: str, plural: str, kind: str, namespaced: bool) -> ResourceRef[RawObject]: ...
@overload
def custom(group: str, version: str, plural: str, kind: str, namespaced: bool, model: type[M]) -> ResourceRef[M]: ...
def custom(group: str, version: str, plural: str, kind: str, namespaced: bool, model: Any = dict) -> Any:
    """A resource that is not listed here: raw dictionaries unless a model is given."""
    return ResourceRef(group, version, plural, kind, namespaced, model)


NODES = ResourceRef("", "v1", "nodes", "Node", False, core.Node)
PODS = ResourceRef("", "v1", "pods", "Pod", True, core.Pod)
SERVICES = ResourceRef("", "v1", "services", "Service", True, core.Service)
NAMESPACES = ResourceRef("", "v1", "namespaces", "Namespace", False, core.Namespace)
SECRETS = ResourceRef("", "v1", "secrets", "Secret", True, core.Secret)
CONFIG_MAPS = ResourceRef("", "v1", "configmaps", "ConfigMap", True, core.ConfigMap)
SERVICE_ACCOUNTS = ResourceRef("", "v1", "serviceaccounts", "ServiceAccount", True, core.ServiceAccount)
EVENTS = ResourceRef("", "v1", "events", "Event", True, core.Event)
EVENTS_V1 = ResourceRef("events.k8s.io", "v1", "events", "Event", True, meta.PartialObject)
LEASES = ResourceRef("coordination.k8s.io", "v1", "leases", "Lease", True, coordination.Lease)
ENDPOINT_SLICES = ResourceRef(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True, discovery.EndpointSlice
)
TOKEN_REVIEWS = ResourceRef("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, auth.TokenReview)
SUBJECT_ACCESS_REVIEWS = ResourceRef(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, auth.SubjectAccessReview
)
SELF_SUBJECT_ACCESS_REVIEWS = ResourceRef(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    False,
    auth.SelfSubjectAccessReview,
)
DEPLOYMENTS = custom("apps", "v1", "deployments", "Deployment", True)
CRDS = custom("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)

ALL: tuple[ResourceRef[Any], ...] = (
    NODES,
    PODS,
    SERVICES,
    NAMESPACES,
    SECRETS,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    EVENTS,
    EVENTS_V1,
    LEASES,
    ENDPOINT_SLICES,
    TOKEN_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    DEPLOYMENTS,
    CRDS,
)
