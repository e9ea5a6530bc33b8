"""A cluster with the permission manager: the manifests, a manager in this process, users and their own clients.

In: a server that nobody else uses. Out: `World`. Users of a test have names of their own, so that tests of one module
can share a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests import servers
from tests.waiting import until

from bedplate.api import permissions
from bedplate.api.permissions import PermissionUser
from bedplate.api.resources import CRDS, EVENTS, NAMESPACES, PODS, RawObject, ResourceRef, custom
from bedplate.kube import Client, config
from bedplate.kube import errors as kube_errors
from bedplate.kube.options import PatchType
from bedplate.kube.subresources import request_token
from bedplate.operators.permissions import live, manifests, options, policies
from bedplate.operators.permissions.assembly import Assembly
from bedplate.program.webhookcertificates import CONFIGURATIONS, MUTATING_CONFIGURATIONS
from bedplate.runtime.leaderelection import Timing

PATIENT = Timing(lease_s=60.0, renew_s=50.0, retry_s=0.3)
"""A manager that ends gives its lease back; one that was merely slow keeps it."""
_REFS = {
    "Namespace": NAMESPACES.raw(),
    "CustomResourceDefinition": CRDS,
    "ServiceAccount": live.REFS["ServiceAccount"].raw(),
    "Role": live.REFS["Role"].raw(),
    "RoleBinding": live.REFS["RoleBinding"].raw(),
    "ClusterRole": live.REFS["ClusterRole"].raw(),
    "ClusterRoleBinding": live.REFS["ClusterRoleBinding"].raw(),
    "MutatingWebhookConfiguration": MUTATING_CONFIGURATIONS,
    "ValidatingWebhookConfiguration": CONFIGURATIONS,
}


async def apply(client: Client, obj: RawObject, manager: str = "kubectl") -> RawObject:
    """`kubectl apply --server-side`."""
    metadata = obj["metadata"]
    return await client.patch(
        _REFS[obj["kind"]],
        metadata["name"],
        obj,
        metadata.get("namespace"),
        type=PatchType.APPLY,
        field_manager=manager,
        force=True,
    )


class World:
    """One cluster with users."""

    def __init__(self, server: servers.Server, client: Client, port: int) -> None:
        self.server = server
        self.client = client
        self.port = port
        self.url = f"https://127.0.0.1:{port}"
        self.id = uuid.uuid4().hex[:5]

    async def install(self) -> None:
        """Apply the manifests, and wait until the kinds are served."""
        for each in manifests.objects(self.url):
            await apply(self.client, each)
        for ref in permissions.KINDS:

            async def is_served(ref: ResourceRef[Any] = ref) -> bool:
                try:
                    await self.client.list(ref, permissions.NAMESPACE)
                except (kube_errors.NotFound, kube_errors.UnexpectedAnswer):
                    return False
                return True

            await until(is_served, f"{ref} served")

    @contextlib.asynccontextmanager
    async def manager(self, **flags: str) -> AsyncIterator[Assembly]:
        """A manager in this process, from the moment on when it is ready."""
        words = {"kubeconfig": str(self.server.kubeconfig), "webhook-port": str(self.port)}
        words |= {key.replace("_", "-"): value for key, value in flags.items()}
        reading = options.read([f"--{key}={value}" for key, value in words.items()])
        assert not reading.problems, reading.problems
        assembly = Assembly(reading.options, {}, timing=PATIENT)
        task = asyncio.create_task(assembly.run())
        try:
            await until(lambda: task.done() or self._is_ready(assembly), "the manager is ready")
            await until(self._is_trusted, "the API server trusts the webhook")
            yield assembly
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def own_account(self, folder: Path) -> Path:
        """A kubeconfig of the account that the manifests give the manager, with its rights and no others."""
        token = await request_token(self.client, manifests.NAME, permissions.SYSTEM_NAMESPACE)
        user = {"token": token.token}
        return servers.write_kubeconfig(folder / "own.kubeconfig", self.server.url, self.server.ca_file, user)

    @staticmethod
    def _is_ready(assembly: Assembly) -> bool:
        return assembly.webhook is not None and assembly.webhook.port > 0 and assembly.webhook.has_synced()

    async def _is_trusted(self) -> bool:
        for ref in (MUTATING_CONFIGURATIONS, CONFIGURATIONS):
            found = await self.client.get(ref, manifests.MUTATING)
            if not all(each["clientConfig"].get("caBundle") for each in found["webhooks"]):
                return False
        return True

    # Users

    def user(self, name: str) -> str:
        """A name of this world."""
        return f"{name}{self.id}"

    async def add(self, name: str, namespace: str = "", *, ref: ResourceRef[Any] | None = None, **spec: Any) -> str:
        """Create a user's custom resource; its name. The user has UID 1000 and `/home/john` unless told otherwise."""
        chosen = ref if ref is not None else permissions.USERS
        user = self.user(name) if name else ""
        place = namespace or f"{user}-restricted"
        fields: dict[str, Any] = {"username": user, "namespace": place}
        if chosen is permissions.USERS:
            fields |= {"uid": 1000, "gids": [1000, 100], "user_paths": ["/home/john", "/scratch"]}
        release = permissions.release_name(user or f"none{self.id}", f"{place}{chosen.plural}")
        body = {
            "metadata": {"name": release, "labels": permissions.labels(user, place)},
            "spec": {**fields, **{key: value for key, value in spec.items() if value is not None}},
        }
        await self.client.create(chosen.raw(), body, permissions.NAMESPACE)
        return release

    async def get(self, release: str, ref: ResourceRef[Any] = permissions.USERS) -> Any:
        return await self.client.get(ref, release, permissions.NAMESPACE)

    async def ready(self, release: str, ref: ResourceRef[Any] = permissions.USERS) -> PermissionUser:
        """Wait until a custom resource is Ready."""
        seen: list[Any] = [None]

        async def is_ready() -> bool:
            seen[0] = await self.get(release, ref)
            return seen[0].status.ready is not None and seen[0].status.ready.is_true

        await until(is_ready, f"{release} is ready", describe=lambda: seen[0])
        found: PermissionUser = seen[0]
        return found

    async def refused(self, release: str, text: str, ref: ResourceRef[Any] = permissions.USERS) -> Any:
        """Wait until a custom resource is not Ready with this message."""
        seen: list[Any] = [None]

        async def is_refused() -> bool:
            seen[0] = await self.get(release, ref)
            ready = seen[0].status.ready
            return ready is not None and ready.status == "False" and text in ready.message

        await until(is_refused, f"{release} is refused with {text}", describe=lambda: seen[0])
        return seen[0]

    async def made(self, name: str, namespace: str = "", **spec: Any) -> str:
        """A user who is ready; the name of the custom resource."""
        release = await self.add(name, namespace, **spec)
        await self.ready(release)
        return release

    async def remove(self, release: str, ref: ResourceRef[Any] = permissions.USERS) -> None:
        """Delete a custom resource and wait until it is gone."""
        await self.client.delete(ref, release, permissions.NAMESPACE)
        await self.gone(ref, release, permissions.NAMESPACE)

    @contextlib.asynccontextmanager
    async def client_of(self, name: str, namespace: str = "") -> AsyncIterator[Client]:
        """A client with the user's own credentials."""
        user = self.user(name)
        place = namespace or f"{user}-restricted"
        token = await request_token(self.client, permissions.user_part(user), place)
        admin = config.load(self.server.kubeconfig, environ={}).with_rate(-1, 1)
        tls = dataclasses.replace(admin.tls, cert_file="", cert_data=b"", key_file="", key_data=b"")
        theirs = dataclasses.replace(admin, tls=tls, auth=config.AuthConfig(token=token.token))
        async with Client(theirs) as opened:
            yield opened

    # Objects

    async def exists(self, ref: ResourceRef[Any], name: str, namespace: str | None = None) -> bool:
        try:
            await self.client.get(ref.partial(), name, namespace)
        except kube_errors.NotFound:
            return False
        return True

    async def gone(self, ref: ResourceRef[Any], name: str, namespace: str | None = None) -> None:
        async def is_gone() -> bool:
            return not await self.exists(ref, name, namespace)

        await until(is_gone, f"{ref} {name} is gone")

    async def versions(self, release: str, ref: ResourceRef[Any] = permissions.USERS) -> dict[str, str]:
        """The resource versions of a custom resource and of everything that it made."""
        resource = await self.get(release, ref)
        found = {release: resource.metadata.resource_version}
        for name in resource.status.objects:
            kind, *place = name.split("/")
            one = live.ref_of(kind).partial()
            got = await self.client.get(one, place[-1], place[0] if len(place) == 2 else None)
            found[name] = got.metadata.resource_version
        return found

    async def events(self, release: str, reason: str) -> list[str]:
        """The messages of the Events about a custom resource."""
        selector = f"involvedObject.name={release}"
        found = await self.client.list(EVENTS, permissions.NAMESPACE, field_selector=selector)
        return [each.message for each in found.items if each.reason == reason]

    async def told(self, release: str, reason: str, text: str) -> None:
        async def is_told() -> bool:
            return any(text in message for message in await self.events(release, reason))

        await until(is_told, f"event {reason} {text}")

    async def create(self, client: Client, pod: RawObject, namespace: str, *, dry_run: bool = False) -> RawObject:
        """Create a pod under a name of its own."""
        metadata = {**pod.get("metadata", {}), "name": f"pod-{uuid.uuid4().hex[:8]}"}
        spec = {"automountServiceAccountToken": False, **pod["spec"]}
        body = {**pod, "metadata": metadata, "spec": spec}
        return await client.create(PODS.raw(), body, namespace, dry_run=dry_run)

    @property
    def has_policies(self) -> bool:
        """Whether the server has ValidatingAdmissionPolicies."""
        return self.server.name.startswith("real")


POLICY_REFS = (policies.POLICIES, policies.BINDINGS)
PERSISTENT_VOLUMES = permissions.PERSISTENT_VOLUMES.raw()
CLAIMS = permissions.CLAIMS.raw()
STORAGE_CLASSES = custom("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)


@contextlib.asynccontextmanager
async def world_on(server: servers.Server) -> AsyncIterator[World]:
    """A cluster with the manifests applied, for one test."""
    settings = config.load(server.kubeconfig, environ={}).with_rate(-1, 1)
    async with Client(settings) as client:
        world = World(server, client, servers.free_port())
        await world.install()
        yield world
