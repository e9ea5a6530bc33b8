"""What people cost a cluster: many users at once, one more, and the admission of their pods.

A real API server and `permissions-manager` as a process. Users: custom resources are created as fast as the server
takes them, and time runs until all are Ready; then one more alone. Admission: pods without anything set are created in
turns in a namespace without rules and in a user's, and the medians are compared; the same with Kyverno and its four
policies of a user on another API server, where it was built. Memory is the manager's, controller and webhook together.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bedplate.api import permissions
from bedplate.api.resources import CRDS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from bedplate.core import errors, logging
from bedplate.kube import client as clients
from bedplate.kube import config
from bedplate.kube import errors as kube_errors
from bedplate.kube.options import PatchType
from bedplate.operators.permissions import live, manifests
from bedplate.program.webhookcertificates import CONFIGURATIONS, MUTATING_CONFIGURATIONS
from bench import kyverno, report, servers

__all__ = ["run"]

DEADLINE_S = 900.0
WRITERS = 16
_LOOK_S = 0.2
_PLAIN = "bench-plain"
_ADDED = "added by the rules, median"
_REFS: dict[str, Any] = {
    "Namespace": NAMESPACES,
    "CustomResourceDefinition": CRDS,
    "MutatingWebhookConfiguration": MUTATING_CONFIGURATIONS,
    "ValidatingWebhookConfiguration": CONFIGURATIONS,
    **live.REFS,
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    users: int = 1000
    pods: int = 300
    single: int = 5


QUICK = Sizes(users=5, pods=5, single=1)


async def run(folder: pathlib.Path, *, is_quick: bool, tell: Callable[[str], None]) -> report.Topic:
    logging.configure(logging.LogOptions(is_quiet=True))
    sizes = QUICK if is_quick else Sizes()
    topic = report.Topic("people", f"{sizes.users:,} users of a real API server", "without us")
    async with servers.real(folder / "real", tell) as server:
        settings = config.load(server.kubeconfig, environ={}).with_rate(-1, 1)
        async with clients.Client(settings) as client:
            port = _free_port()
            await _install(client, f"https://127.0.0.1:{port}")
            with _manager(server.kubeconfig, port, folder) as process:
                await _measure(client, process.pid, sizes, topic, tell)
    beside = await kyverno.added(folder, tell, _free_port(), _until, lambda *three: _admit(*three, sizes.pods))
    if beside is None:
        topic.notes.append("Kyverno is not in the cache (bedplate binaries get kyverno): it was not measured")
    else:
        with_ms, plain_ms = beside
        (own,) = [row.ours for row in topic.rows if row.name == _ADDED]
        topic.rows.append(
            report.Row(
                "added by the rules, beside Kyverno's four policies", own, with_ms - plain_ms, "ms", is_less_better=True
            )
        )
    topic.notes.append("one more user: the median of users that are added alone, before and after all others")
    return topic


async def _measure(
    client: clients.Client, pid: int, sizes: Sizes, topic: report.Topic, tell: Callable[[str], None]
) -> None:
    tell("a few users alone")
    first_s = statistics.median([await _add(client, [f"early{number}"]) for number in range(sizes.single)])
    tell(f"{sizes.users:,} users")
    cpu = servers.cpu_s(pid)
    all_s = await _add(client, [f"user{number:04d}" for number in range(sizes.users)])
    cpu = servers.cpu_s(pid) - cpu
    last_s = statistics.median([await _add(client, [f"late{number}"]) for number in range(sizes.single)])
    tell(f"{sizes.pods} pods in each of two namespaces")
    ours_ms, plain_ms = await _admit(client, "early0-restricted", _PLAIN, sizes.pods)
    topic.rows += [
        report.Row("all users, from the first create until all are Ready", all_s, None, "s", limit=60.0),
        report.Row("processor time of the manager for it", cpu, None, "s"),
        report.Row("one more user beside all others", last_s, first_s, "s", is_less_better=True),
        report.Row("creating a pod, median", ours_ms, plain_ms, "ms", is_less_better=True),
        report.Row(_ADDED, max(ours_ms - plain_ms, 0.0), None, "ms", limit=3.0),
        report.Row("memory of the manager", servers.rss_mb(pid), None, "MB", limit=150.0),
    ]


async def _install(client: clients.Client, url: str) -> None:
    for each in manifests.objects(url):
        ref, metadata = _REFS[each["kind"]].raw(), each["metadata"]
        options: Any = {"type": PatchType.APPLY, "field_manager": "bench", "force": True}
        await client.patch(ref, metadata["name"], each, metadata.get("namespace"), **options)
    for ref in permissions.KINDS:
        await _until(lambda ref=ref: _is_served(client, ref), f"{ref} served")
    await client.create(NAMESPACES, {"metadata": {"name": _PLAIN}})


async def _is_served(client: clients.Client, ref: Any) -> bool:
    try:
        await client.list(ref, permissions.NAMESPACE)
    except (kube_errors.NotFound, kube_errors.UnexpectedAnswer):
        return False
    return True


@contextlib.contextmanager
def _manager(kubeconfig: pathlib.Path, port: int, folder: pathlib.Path) -> Iterator[subprocess.Popen[bytes]]:
    program = pathlib.Path(sys.executable).with_name("permissions-manager")
    command = [str(program), f"--kubeconfig={kubeconfig}", f"--webhook-port={port}"]
    with open(folder / "manager.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def _add(client: clients.Client, names: list[str]) -> float:
    """Create users and wait until they are Ready: how long it took."""
    limit, waiting = asyncio.Semaphore(WRITERS), set()
    begin = time.monotonic()

    async def create(number: int, name: str) -> None:
        place = f"{name}-restricted"
        release = permissions.release_name(name, place)
        spec = {
            "username": name,
            "namespace": place,
            "uid": 2000 + number,
            "gids": [2000 + number],
            "user_paths": [f"/home/{name}"],
        }
        async with limit:
            body = {"metadata": {"name": release, "labels": permissions.labels(name, place)}, "spec": spec}
            await client.create(permissions.USERS.raw(), body, permissions.NAMESPACE)
        waiting.add(release)

    await asyncio.gather(*(create(number, name) for number, name in enumerate(names)))

    async def are_ready() -> bool:
        if len(names) == 1:
            (release,) = waiting
            found = [await client.get(permissions.USERS, release, permissions.NAMESPACE)]
        else:
            found = (await client.list(permissions.USERS, permissions.NAMESPACE)).items
        done = {each.name for each in found if each.status.ready is not None and each.status.ready.is_true}
        return waiting <= done

    await _until(are_ready, "all users are ready", _LOOK_S if len(names) > 1 else 0.005)
    return time.monotonic() - begin


async def _admit(client: clients.Client, ruled: str, plain: str, count: int) -> tuple[float, float]:
    """Median milliseconds of a pod in a namespace with rules and in one without, in turns."""
    times: dict[str, list[float]] = {ruled: [], plain: []}
    for namespace in times:
        # The controller that would make it does not run here.
        with contextlib.suppress(kube_errors.AlreadyExists):
            await client.create(SERVICE_ACCOUNTS.raw(), {"metadata": {"name": "default", "namespace": namespace}})
    container = {"name": "main", "image": "none"}
    spec = {"automountServiceAccountToken": False, "containers": [container]}
    for _ in range(count):
        for namespace, seconds in times.items():
            begin = time.perf_counter()
            await client.create(PODS.raw(), {"metadata": {"generateName": "bench-"}, "spec": spec}, namespace)
            seconds.append(time.perf_counter() - begin)
    with_ms, plain_ms = (statistics.median(seconds) * 1000 for seconds in times.values())
    return with_ms, plain_ms


async def _until(question: Any, what: str, step_s: float = _LOOK_S) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await question():
        if time.monotonic() > deadline:
            raise errors.Unavailable(f"waited {DEADLINE_S:.0f} s until {what}")
        await asyncio.sleep(step_s)


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])
