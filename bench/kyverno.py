"""What Kyverno's admission controller adds to the creation of a pod, with the same four policies of one user.

In: a folder, the number of pods. Out: median milliseconds with its policies and without, on a real API server of its
own; None where Kyverno is not in the cache (`bedplate binaries get kyverno`). Our own rules do not run beside it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Awaitable, Callable, Iterator

import yaml

from bedplate.api.resources import CONFIG_MAPS, CRDS, NAMESPACES, PODS, SERVICE_ACCOUNTS, RawObject, ResourceRef
from bedplate.kube import client as clients
from bedplate.kube import config
from bedplate.kube import errors as kube_errors
from bedplate.kube.options import PatchType
from bedplate.lab import binaries, building, versions
from bedplate.operators.permissions import kyverno, live
from bedplate.operators.permissions.rules import RuleSet
from bedplate.program.webhookcertificates import CONFIGURATIONS, MUTATING_CONFIGURATIONS
from bench import servers

__all__ = ["MODULE", "NAMESPACE", "REGISTERED", "added", "prepare", "running"]

MODULE = "github.com/kyverno/kyverno"
NAMESPACE, USER = "kyverno", "john"
REGISTERED = "kyverno-policy-mutating-webhook-cfg"
_OF_PODS = (
    (MUTATING_CONFIGURATIONS, "kyverno-resource-mutating-webhook-cfg"),
    (CONFIGURATIONS, "kyverno-resource-validating-webhook-cfg"),
)
Until = Callable[[Callable[[], Awaitable[bool]], str], Awaitable[None]]
Admit = Callable[[clients.Client, str, str], Awaitable[tuple[float, float]]]


async def added(
    folder: pathlib.Path, tell: Callable[[str], None], free_port: int, until: Until, admit: Admit
) -> tuple[float, float] | None:
    """`admit` creates pods in turns in a namespace with policies and in one without, and gives both medians."""
    program = binaries.cached("kyverno")
    if program is None:
        return None
    tell("Kyverno's admission controller beside it")
    source = building.Builder(binaries.cache_folder(), dict(os.environ), tell).fetch(MODULE, versions.KYVERNO)
    async with (
        servers.real(folder / "kyverno", tell) as server,
        clients.Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as client,
    ):
        await prepare(client, source, f"{USER}-restricted", "bench-without")
        with running(program, server.kubeconfig, free_port, folder):
            await until(lambda: _has(client, MUTATING_CONFIGURATIONS, REGISTERED), "Kyverno is registered")
            await _policies(client, until)
            return await admit(client, f"{USER}-restricted", "bench-without")


async def prepare(client: clients.Client, source: pathlib.Path, *namespaces: str) -> None:
    """Kyverno's definitions, as its module has them, its namespace and settings, and further namespaces."""
    for file in sorted((source / "config" / "crds").rglob("*.yaml")):
        definition = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
        if definition and definition.get("kind") == "CustomResourceDefinition":
            name = definition["metadata"]["name"]
            await client.patch(CRDS, name, definition, type=PatchType.APPLY, field_manager="bench", force=True)
    for namespace in (NAMESPACE, *namespaces):
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    for name in ("kyverno", "kyverno-metrics"):
        await client.create(CONFIG_MAPS.raw(), {"metadata": {"name": name}, "data": {}}, NAMESPACE)


@contextlib.contextmanager
def running(program: pathlib.Path, kubeconfig: pathlib.Path, port: int, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Run its admission controller, which the API server reaches by URL; its log."""
    flags = {
        "kubeconfig": kubeconfig,
        "serverIP": f"127.0.0.1:{port}",
        "webhookServerHost": "127.0.0.1",
        "webhookServerPort": port,
        "caSecretName": "kyverno-ca",
        "tlsSecretName": "kyverno-tls",
        "disableMetrics": "true",
        "admissionReports": "false",
        "enableReporting": "",
        "backgroundServiceAccountName": "system:serviceaccount:kyverno:background",
        "reportsServiceAccountName": "system:serviceaccount:kyverno:reports",
    }
    environ = {
        "KYVERNO_NAMESPACE": NAMESPACE,
        "KYVERNO_SERVICEACCOUNT_NAME": "kyverno",
        "KYVERNO_DEPLOYMENT": "kyverno",
        "KYVERNO_POD_NAME": "kyverno-0",
        "INIT_CONFIG": "kyverno",
        "METRICS_CONFIG": "kyverno-metrics",
    }
    command = [str(program), *(f"--{name}={value}" for name, value in flags.items())]
    file = folder / "kyverno.log"
    with file.open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environ})
    try:
        yield file
    finally:
        process.terminate()
        process.wait()


async def _policies(client: clients.Client, until: Until) -> None:
    rules = RuleSet(release=f"{USER}-bench", user=USER, uid=2000, gids=(2000,), paths=(f"/home/{USER}/",))
    made = kyverno.policies(rules, f"{USER}-restricted", {})
    for policy in made:
        await until(lambda policy=policy: _is_taken(client, policy), "Kyverno takes a policy")

    async def are_ready() -> bool:
        known = (await client.list(live.CLUSTER_POLICIES)).items
        conditions = [(each.get("status") or {}).get("conditions") or [{}] for each in known]
        return len(known) == len(made) and all(each[0].get("status") == "True" for each in conditions)

    async def are_asked() -> bool:
        return all([await _has(client, ref, name) for ref, name in _OF_PODS])

    await until(are_ready, "Kyverno has the policies")
    await until(are_asked, "Kyverno is asked about pods")
    await until(lambda: _is_refused(client), "Kyverno refuses a host path")


async def _is_taken(client: clients.Client, policy: RawObject) -> bool:
    try:
        await client.create(live.CLUSTER_POLICIES, policy)
    except kube_errors.InternalError:
        # It is registered some moments before it has its certificate.
        return False
    return True


async def _is_refused(client: clients.Client) -> bool:
    namespace = f"{USER}-restricted"
    with contextlib.suppress(kube_errors.AlreadyExists):
        await client.create(SERVICE_ACCOUNTS.raw(), {"metadata": {"name": "default"}}, namespace)
    container = {"name": "main", "image": "none"}
    volumes = [{"name": "etc", "hostPath": {"path": "/etc"}}]
    spec = {"automountServiceAccountToken": False, "containers": [container], "volumes": volumes}
    try:
        await client.create(PODS.raw(), {"metadata": {"generateName": "bench-"}, "spec": spec}, namespace, dry_run=True)
    except kube_errors.BadRequest:
        return True
    return False


async def _has(client: clients.Client, ref: ResourceRef[RawObject], name: str) -> bool:
    try:
        return bool((await client.get(ref, name)).get("webhooks"))
    except kube_errors.NotFound:
        return False
