"""`cmjksidecar` as a program: waits for the kernel's connection file, serves its channels, ends with the gateway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from bedplate.core import clock, errors, logging
from bedplate.operators.jupyter.names import SIDECAR
from bedplate.operators.jupyter.sidecar.connection import Connection, ConnectionFile
from bedplate.operators.jupyter.sidecar.gateway import Gateway, Stopped
from bedplate.operators.jupyter.sidecar.options import Options, Place, Serving, place, read
from bedplate.operators.jupyter.sidecar.relay import Relay
from bedplate.program import options as program
from bedplate.program import process
from bedplate.program.options import help_text
from bedplate.program.process import Program

__all__ = ["PROGRAM", "Sidecar", "main"]

log = logging.get_logger("cmjksidecar")
LOOK_S = 0.2

_ABOUT = (
    "Runs beside a Jupyter kernel in its pod: waits for the kernel's connection file, passes the five channels on, "
    "tells Jupyter Enterprise Gateway how to reach them, and stops when the gateway no longer pings.",
    "Variables: CMJK_CONNECTION_FILE (/var/tmp/kernel-parm.json), CMJK_KERNEL_ID, CMJK_SHELL_PORT (5001), "
    "CMJK_IOPUB_PORT (5002), CMJK_STDIN_PORT (5003), CMJK_CONTROL_PORT (5004), CMJK_HB_PORT (5005), "
    "CMJK_COMM_PORT (5006).",
    "Exit code: 0 after SIGTERM, SIGINT or the gateway's shutdown, 1 for everything else: a wrong command line, a port "
    "in use, no ping for --timeout seconds.",
)
_EXAMPLES = ("--timeout 60", "--response-address 10.0.0.1:8877 --public-key MIGfMA0GCSqG…")


class Sidecar:
    """One kernel's sidecar. `ports` says where it serves once `is_serving` is set."""

    def __init__(self, chosen: Serving, where: Place, time: clock.Clock) -> None:
        self._chosen = chosen
        self._where = where
        self._time = time
        self._file = ConnectionFile(where.connection_file)
        self._relays = {name: Relay(name, self._file.read) for name in where.ports}
        self.gateway = Gateway(chosen.timeout, where.kernel_id, self._file.read, time)
        self.is_serving = asyncio.Event()

    @property
    def ports(self) -> dict[str, int]:
        """Where every channel is served."""
        return {name: relay.port for name, relay in self._relays.items()}

    async def run(self) -> None:
        """Serve until the gateway ends it (returns) or is gone (raises `TimedOut`)."""
        async with contextlib.AsyncExitStack() as stack:
            server = await self.gateway.serve(self._chosen.bind_address or None, self._where.comm_port)
            stack.push_async_callback(self.gateway.close)
            stack.callback(server.close)
            working = asyncio.ensure_future(self._work(stack))
            stack.push_async_callback(_ended, working)
            watching = asyncio.ensure_future(self.gateway.watch())
            stack.push_async_callback(_ended, watching)
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                # It only ends early where a port is taken or the gateway's key is none.
                working.result()
            try:
                await watching
            except Stopped as end:
                log.info("sidecar.ended", why=str(end))

    async def _work(self, stack: contextlib.AsyncExitStack) -> None:
        log.info("sidecar.waiting", connection_file=self._where.connection_file)
        while (connection := self._file.read()) is None:
            await self._time.sleep(LOOK_S)
        for name, relay in self._relays.items():
            await relay.open(self._chosen.bind_address or None, self._where.ports[name])
            stack.push_async_callback(relay.close)
        log.info("sidecar.serving", comm=self.gateway.port, **self.ports)
        self.is_serving.set()
        if self._chosen.response_address:
            host, port = program.listener(self._chosen.response_address) or ("", 0)
            await self.gateway.tell(host or "", port, self._chosen.public_key, self._parameters(connection))

    def _parameters(self, connection: Connection) -> dict[str, Any]:
        """The kernel's connection with the sidecar's ports."""
        ports = {f"{name}_port": port for name, port in self.ports.items()}
        kept = ("key", "signature_scheme", "kernel_name")
        shared: dict[str, Any] = {name: value for name, value in connection.raw.items() if name in kept}
        own = {"kernel_id": self._where.kernel_id, "comm_port": self.gateway.port, "transport": "tcp"}
        return {**shared, **ports, **own}


class PortTaken(errors.Terminal):
    """The sidecar cannot listen."""


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _run(options: Options, environ: Mapping[str, str]) -> None:
    sidecar = Sidecar(options.serving, place(environ), clock.SystemClock())
    try:
        await sidecar.run()
    except OSError as err:
        raise PortTaken(f"a port cannot be served: {err.strerror or err}") from err


def _start(options: Options, environ: Mapping[str, str]) -> Coroutine[Any, Any, None]:
    return _run(options, environ)


PROGRAM: Program[Options] = Program(
    name=SIDECAR,
    log=log,
    part="sidecar",
    read=read,
    usage=lambda: help_text(SIDECAR, _ABOUT, _EXAMPLES, Options()),
    start=_start,
    facts=lambda options: {"timeout_s": options.serving.timeout},
)


def main(words: Sequence[str]) -> int:
    """Run until SIGTERM, SIGINT or the gateway's end; returns the exit code."""
    return process.main(PROGRAM, words)
