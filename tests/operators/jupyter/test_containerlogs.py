"""What containers wrote is in the operator's log before their pod goes."""

from __future__ import annotations

import io
from typing import Any

import msgspec

from bedplate.core import errors, logging
from bedplate.kube.transport import Response
from bedplate.operators.jupyter import containerlogs
from bedplate.operators.jupyter.plan import PodView

TIMEOUT = "cmjksidecar: Timeout receiving pings from server for 60 sec. Shutting down."


class Logs:
    """The part of a client that gives logs."""

    def __init__(self, texts: dict[str, bytes]) -> None:
        self._texts = texts

    async def request(self, method: str, path: str, *, query: Any, accept: str) -> Response:
        assert (method, path) == ("GET", "/api/v1/namespaces/john/pods/p/log")
        try:
            return Response(200, self._texts[dict(query)["container"]])
        except KeyError:
            raise errors.Unavailable("the node does not answer") from None


def pod(**states: dict[str, Any]) -> PodView:
    statuses = [{"name": name, "state": state} for name, state in states.items()]
    body = {"metadata": {"name": "p", "namespace": "john"}, "status": {"containerStatuses": statuses}}
    return msgspec.convert(body, PodView)


async def logged(texts: dict[str, bytes], given: PodView) -> list[str]:
    out = io.StringIO()
    logging.configure(logging.LogOptions(), out)
    await containerlogs.gather(Logs(texts), given)  # type: ignore[arg-type]
    return out.getvalue().splitlines()


async def test_every_line_is_logged_behind_its_containers_name() -> None:
    texts = {"kernel": b"one\ntwo\n", "cmjksidecar": TIMEOUT.encode() + b"\n"}
    lines = await logged(texts, pod(kernel={"running": {}}, cmjksidecar={"terminated": {"exitCode": 1}}))
    events = [line.partition("] ")[2].partition(" [jupyter.kernels]")[0].rstrip() for line in lines]
    below = "Container is stopped. Logs are below"
    assert events == [below, "kernel: one", "kernel: two", below, f"cmjksidecar: {TIMEOUT}"]


async def test_logs_that_cannot_be_read_hold_nothing_up() -> None:
    lines = await logged({"b": b"x\n"}, pod(a={"running": {}}, b={"running": {}}, c={"waiting": {"reason": "Pull"}}))
    assert "kernel.logs_not_read" in lines[0] and "the node does not answer" in lines[0]
    assert any("b: x" in line for line in lines) and len(lines) == 3


async def test_what_a_terminal_would_obey_is_not_logged_as_it_is() -> None:
    lines = await logged({"a": b"\x1b[2Jgone \xff\n"}, pod(a={"terminated": {"exitCode": 0}}))
    assert not any("\x1b" in line for line in lines)
