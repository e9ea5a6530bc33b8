"""What every namespace gets: its `default` account and the CA bundle; tokens for token Secrets; aggregated roles.

In: namespaces, service accounts, config maps, secrets, cluster roles. Out: the objects that are missing; a Secret of
type service-account-token gets `token`, `ca.crt` and `namespace`, and goes with its account; ClusterRoles with an
`aggregationRule` get their rules.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable

from bedplate.apiserver import hooks, services
from bedplate.apiserver.access import rbac, subjects, tokens
from bedplate.apiserver.controllers.loop import Loop, absent_is_fine
from bedplate.apiserver.state import bodies
from bedplate.core.tasks import TaskGroup

__all__ = ["ROOT_CA", "run", "run_aggregation"]

ROOT_CA = "kube-root-ca.crt"
AUTHENTICATION = "extension-apiserver-authentication"
"""Where programs that answer on behalf of the API server learn whom it trusts."""
TOKEN_TYPE = "kubernetes.io/service-account-token"
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
# A token without end, as these Secrets have always held: a hundred years.
_FOREVER_S = 100 * 365 * 24 * 3600


async def run(parts: services.Services, signer: tokens.Signer, ca_pem: str) -> None:
    """Run until cancelled."""
    client = parts.client.acting_as(subjects.LOOPBACK, "service-account-controller")

    async def reconcile(name: str) -> None:
        namespace = client.get("", "namespaces", "", name)
        if namespace is None or namespace["metadata"].get("deletionTimestamp"):
            return
        if client.get("", "serviceaccounts", name, "default") is None:
            await client.create("", "serviceaccounts", {"metadata": {"name": "default", "namespace": name}})
        bundle = client.get("", "configmaps", name, ROOT_CA)
        data = {"ca.crt": ca_pem}
        if bundle is None:
            await client.create("", "configmaps", {"metadata": {"name": ROOT_CA, "namespace": name}, "data": data})
        elif bundle.get("data") != data:
            await client.update("", "configmaps", bundle | {"data": data})

        if name == "kube-system" and client.get("", "configmaps", name, AUTHENTICATION) is None:
            published = {"client-ca-file": ca_pem}
            meta = {"name": AUTHENTICATION, "namespace": name}
            await client.create("", "configmaps", {"metadata": meta, "data": published})

    async def fill(key: tuple[str, str]) -> None:
        await _fill_secret(parts, client, signer, ca_pem, *key)

    places: Loop[str] = Loop("accounts", client, reconcile)
    secrets: Loop[tuple[str, str]] = Loop("token-secrets", client, fill)

    def secrets_of(change: bodies.Change) -> list[tuple[str, str]]:
        if change.type != "DELETED":
            return []
        return [
            (change.namespace, secret["metadata"]["name"])
            for secret in client.list("", "secrets", change.namespace)
            if secret.get("type") == TOKEN_TYPE
        ]

    async with TaskGroup() as tasks:
        gone = ("", "serviceaccounts", _default_gone("default")), ("", "configmaps", _default_gone(ROOT_CA))
        tasks.create_task(places.run(("", "namespaces", lambda change: (change.name,)), *gone))
        tasks.create_task(secrets.run(("", "serviceaccounts", secrets_of), ("", "secrets", _token_secret)))


def _default_gone(name: str) -> Callable[[bodies.Change], tuple[str, ...]]:
    """The namespace of an object of that name which was changed or deleted."""
    return lambda change: (change.namespace,) if change.name == name and change.type != "ADDED" else ()


def _token_secret(change: bodies.Change) -> tuple[tuple[str, str], ...]:
    is_token = change.type != "DELETED" and TOKEN_TYPE.encode() in change.body
    return ((change.namespace, change.name),) if is_token else ()


async def _fill_secret(
    parts: services.Services, client: hooks.Client, signer: tokens.Signer, ca_pem: str, namespace: str, name: str
) -> None:
    secret = client.get("", "secrets", namespace, name)
    if secret is None or secret.get("type") != TOKEN_TYPE:
        return
    notes = secret["metadata"].get("annotations") or {}
    account = client.get("", "serviceaccounts", namespace, notes.get(NAME, ""))
    if account is None or notes.get(UID, account["metadata"]["uid"]) != account["metadata"]["uid"]:
        options = {"preconditions": {"uid": secret["metadata"]["uid"]}}
        await absent_is_fine(client.delete("", "secrets", namespace, name, options))
        return
    if (secret.get("data") or {}).get("token"):
        return
    until = int(parts.clock.now().timestamp()) + _FOREVER_S
    bound = ("Secret", name, secret["metadata"]["uid"])
    uid = account["metadata"]["uid"]
    audience = (tokens.DEFAULT_AUDIENCE,)
    claims = tokens.Claims(namespace, notes[NAME], uid, audience, until, str(uuid.uuid4()), bound)
    values = {"token": signer.sign(claims), "ca.crt": ca_pem, "namespace": namespace}
    secret["data"] = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    secret["metadata"]["annotations"] = notes | {UID: uid}
    await client.update("", "secrets", secret)


async def run_aggregation(parts: services.Services) -> None:
    """Keep the rules of aggregated ClusterRoles equal to the sum of the roles their selectors find, until cancelled."""
    client = parts.client.acting_as(subjects.LOOPBACK, "clusterrole-aggregation-controller")

    async def reconcile(_: str) -> None:
        roles = client.list(rbac.GROUP, "clusterroles")
        for role in roles:
            rules = rbac.aggregate(role, roles)
            if rules is not None and rules != (role.get("rules") or []):
                await client.update(rbac.GROUP, "clusterroles", role | {"rules": rules})

    loop: Loop[str] = Loop("roles", client, reconcile)
    # One key for all: roles change seldom, and an aggregated role may depend on any other.
    await loop.run((rbac.GROUP, "clusterroles", lambda _: ("all",)))
