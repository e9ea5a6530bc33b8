"""A cluster with the kinds of the permission manager, somebody in the manager's place, and accounts of the test."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests import programs, servers

from bedplate.api import permissions
from bedplate.api.resources import CRDS, NAMESPACES, RawObject
from bedplate.core import errors
from bedplate.kube import Client
from bedplate.kube.options import PatchType
from bedplate.operators.permissions import crds
from bedplate.people import grants
from bedplate.people.accounts import Account
from bedplate.setup.people import actions
from bedplate.setup.people.request import Action, Cluster, Request


@dataclass
class People:
    """Accounts of a test: all of them have the UID of whoever runs it, so that no root is needed."""

    folder: Path
    names: tuple[str, ...] = ("john", "anna", "John.Doe")
    uid: int = field(default_factory=os.getuid)
    gid: int = field(default_factory=os.getgid)

    def find(self, name: str) -> Account | None:
        if name not in self.names:
            return None
        home = self.folder / name
        home.mkdir(exist_ok=True, mode=0o755)
        return Account(name, self.uid, (self.gid,), home)


@dataclass
class World:
    """One cluster, and the tool in front of it."""

    server: servers.Server
    client: Client
    people: People
    ca: tuple[Path, Path] | None = None
    questions: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    async def run(self, action: Action, user: str = "", **values: Any) -> str:
        """What the tool prints; errors are raised."""
        clusters = (Cluster(values.pop("name", ""), self.server.kubeconfig),)
        given = {"ca_certificate": self.ca[0], "ca_key": self.ca[1]} if self.ca is not None else {}
        request = Request(action=action, clusters=clusters, user=user, **{**given, **values})
        out = io.StringIO()
        await actions.carry_out(request, out, actions.Surroundings(accounts=self.people, ask=self._ask))
        return out.getvalue()

    def _ask(self, question: str) -> str:
        self.questions.append(question)
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)

    async def objects(self) -> dict[str, list[RawObject]]:
        """All permission objects by kind."""
        return {ref.plural: (await self.client.list(ref, permissions.NAMESPACE)).items for ref in grants.KINDS}


async def install(client: Client) -> None:
    """The custom kinds and their namespace."""
    for definition in crds.definitions():
        name = definition["metadata"]["name"]
        await client.patch(CRDS, name, definition, type=PatchType.APPLY, field_manager="tests", force=True)
    with contextlib.suppress(errors.AlreadyExists):
        await client.create(NAMESPACES, {"metadata": {"name": permissions.NAMESPACE}})


Judge = Callable[[RawObject], str]
"""Why the manager refuses an object; "" for those that it takes."""


@contextlib.asynccontextmanager
async def stand_in(client: Client, judge: Judge = lambda obj: "") -> AsyncIterator[None]:
    """Somebody who says of every permission object that it is ready, or why not, and lets it go when it is deleted."""

    async def work() -> None:
        while True:
            for ref in grants.KINDS:
                with contextlib.suppress(errors.BedplateError):
                    for obj in (await client.list(ref, permissions.NAMESPACE)).items:
                        await _answer(client, ref, obj, judge(obj))
            await asyncio.sleep(0.01)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _answer(client: Client, ref: Any, obj: RawObject, refusal: str) -> None:
    metadata = obj["metadata"]
    if metadata.get("deletionTimestamp") or grants.state_of(obj).is_reported:
        return
    condition = {
        "type": "Ready",
        "status": "False" if refusal else "True",
        "reason": "Test",
        "message": refusal,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": metadata["generation"],
    }
    status = {"status": {"conditions": [condition], "observedGeneration": metadata["generation"]}}
    with contextlib.suppress(errors.NotFound):
        await client.patch(ref, metadata["name"], status, permissions.NAMESPACE, subresource="status")


@contextlib.contextmanager
def real_cluster(folder: Path) -> Iterator[servers.Server]:
    """A real API server that trusts an authority of its own for clients, with a controller manager that signs."""
    from bedplate.serving import issuing

    now = datetime.now(UTC)
    issuing.Authority.create("kubernetes", now, timedelta(days=3650)).pair.write(folder, "client-ca")
    certificate, key = folder / "client-ca.crt", folder / "client-ca.key"
    with programs.own_server("real", api_arguments=(f"--client-ca-file={certificate}",)) as server:
        processes = servers.Processes("signer")
        try:
            processes.start(
                "kube-controller-manager",
                str(programs.built("kube-controller-manager", servers.REAL)),
                f"--kubeconfig={server.kubeconfig}",
                f"--authentication-kubeconfig={server.kubeconfig}",
                f"--authorization-kubeconfig={server.kubeconfig}",
                "--controllers=certificatesigningrequest-signing-controller",
                f"--cluster-signing-cert-file={certificate}",
                f"--cluster-signing-key-file={key}",
                f"--cert-dir={folder / 'signer-certs'}",
                f"--secure-port={servers.free_port()}",
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
            )
            yield server
        finally:
            processes.stop()
