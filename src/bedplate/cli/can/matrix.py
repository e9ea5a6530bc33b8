"""Who may do what where: users × namespaces × verbs, by roles and bindings alone. Pure.

In: the objects of a cluster, a resource. Out: rows. Users are those of permission objects and the persons that bindings
name; accounts and groups of the cluster itself are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bedplate.api import permissions
from bedplate.apiserver.access.subjects import Attributes
from bedplate.cli.can import answer
from bedplate.cli.can.objects import Objects
from bedplate.core import errors

__all__ = ["VERBS", "Row", "rows"]

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")


class Row(msgspec.Struct, frozen=True):
    """What one user may do with a resource in one namespace."""

    user: str
    namespace: str
    verbs: dict[str, bool]


def users_of(objects: Objects) -> list[str]:
    """Every person that the objects name."""
    names = {str((obj.get("spec") or {}).get("username") or "") for obj in objects.of(permissions.USERS.plural)}
    for binding in (*objects.of("rolebindings"), *objects.of("clusterrolebindings")):
        for subject in binding.get("subjects") or ():
            if subject.get("kind") == "User" and not str(subject.get("name", "")).startswith("system:"):
                names.add(str(subject.get("name", "")))
    return sorted(names - {""})


def parse_resource(text: str) -> tuple[str, str, str]:
    """`pods`, `pods/log`, `deployments.apps`: the API group, the resource and the subresource."""
    main, _, subresource = text.partition("/")
    resource, _, group = main.partition(".")
    if not resource:
        raise errors.Invalid(f"{text!r} is not a resource", hint="write it as pods, pods/log or deployments.apps")
    return group, resource, subresource


def rows(
    objects: Objects,
    resource: str = "pods",
    users: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    verbs: Sequence[str] = VERBS,
) -> list[Row]:
    """The matrix, in the order of users and namespaces; of all of them where none are named."""
    group, plural, subresource = parse_resource(resource)
    policy = answer.policy_of(objects)
    places = namespaces or sorted(obj["metadata"]["name"] for obj in objects.of("namespaces"))
    result = []
    for name in users or users_of(objects):
        user = answer.user_of(name)
        for place in places:
            wishes = {verb: Attributes(verb, group, "v1", plural, subresource, place) for verb in verbs}
            result.append(Row(name, place, {verb: policy.decide(user, wish).allowed for verb, wish in wishes.items()}))
    return result
