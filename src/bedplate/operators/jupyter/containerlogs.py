"""What the containers of a kernel wrote, gathered into the operator's log before their pod is deleted.

In: a client, a pod. Out: log lines: `Container is stopped. Logs are below`, then every line with its container's name
before it. What cannot be read is told and holds nothing up: the kernel is over all the same.
"""

from __future__ import annotations

from bedplate.api.resources import PODS
from bedplate.core import errors, logging
from bedplate.kube.client import Client
from bedplate.operators.jupyter.plan import PodView

__all__ = ["gather"]

log = logging.get_logger("jupyter.kernels")
LINES, BYTES = 1000, 1 << 20
"""The most that is taken of one container, from its end."""
_LONGEST = 2000


async def gather(client: Client, pod: PodView) -> list[str]:
    """Log what every container wrote; the lines as logged."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    gathered: list[str] = []
    for container in statuses:
        if container.state.waiting is None:
            gathered += await _gather(client, pod, container.name)
    return gathered


async def _gather(client: Client, pod: PodView, container: str) -> list[str]:
    bound = log.bind(namespace=pod.namespace, pod=pod.name)
    query = [("container", container), ("tailLines", str(LINES)), ("limitBytes", str(BYTES))]
    path = PODS.path(pod.namespace, pod.name, "log")
    try:
        answer = await client.request("GET", path, query=query, accept="*/*")
    except errors.BedplateError as err:
        bound.warning("kernel.logs_not_read", container=container, error=str(err))
        return []
    lines = [f"{container}: {_printable(line)}" for line in answer.body.decode(errors="replace").splitlines()]
    bound.info("Container is stopped. Logs are below", container=container, lines=len(lines))
    for line in lines:
        bound.info(line)
    return lines


def _printable(line: str) -> str:
    """A kernel's output may contain what a terminal would obey."""
    return "".join(char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in line)[
        :_LONGEST
    ]
