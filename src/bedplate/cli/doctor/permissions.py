"""What the manager must be allowed to do: the rows its ClusterRole and Role have to cover.

In: nothing. Out: `NEEDED`, each row with the fields an access review takes. The shipped manifests are tested by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from bedplate.api import names

__all__ = ["NEEDED", "Permission"]


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""

    @property
    def target(self) -> str:
        """What the verb acts on."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        what += f"/{self.subresource}" if self.subresource else ""
        return what + (f" in {self.namespace}" if self.namespace else "")

    def attributes(self, lease: str) -> dict[str, str]:
        """The resourceAttributes of an access review. `lease`: the one Lease to which a role may limit the right."""
        # A Lease is created before its name can be a condition.
        is_of_lease = self.resource == "leases" and self.verb != "create"
        return {
            "verb": self.verb,
            "resource": self.resource,
            "group": self.group,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": lease if is_of_lease else "",
        }


def _rows(verbs: str, resource: str, group: str = "", subresource: str = "", namespace: str = "") -> list[Permission]:
    return [Permission(verb, resource, group, subresource, namespace) for verb in verbs.split()]


NEEDED: tuple[Permission, ...] = (
    *_rows("get list watch patch delete", "nodes"),
    *_rows("patch", "nodes", subresource="status"),
    *_rows("get list watch", "services"),
    *_rows("patch", "services", subresource="status"),
    *_rows("create patch", "events"),
    *_rows("get list watch", "endpointslices", "discovery.k8s.io"),
    *_rows("get create update", "leases", "coordination.k8s.io", namespace=names.NAMESPACE_SYSTEM),
    *_rows("create", "tokenreviews", "authentication.k8s.io"),
    *_rows("create", "subjectaccessreviews", "authorization.k8s.io"),
)
