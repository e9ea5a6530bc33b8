"""Run a command and say clearly what went wrong.

In: a command, a deadline, the intention in words. Out: its standard output, or an error that names the intention, the
exit code and the last lines. Long-lived programs are not started here (`nodes.Launcher`).
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence

from bedplate.core import errors
from bedplate.lab import processes

__all__ = ["run"]


async def run(
    command: Sequence[str],
    what: str,
    *,
    timeout_s: float = 60.0,
    stdin: str = "",
    environ: Mapping[str, str] | None = None,
    around: Sequence[str] = (),
) -> str:
    """Standard output of a command that succeeded; it is killed when the deadline passes or we are cancelled.

    `around` is put before the command to run it elsewhere, and left out of messages.
    """
    child = await asyncio.create_subprocess_exec(
        *around,
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environ) if environ is not None else None,
        preexec_fn=processes.die_with_parent(os.getpid()),
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await child.communicate(stdin.encode())
    except TimeoutError:
        raise errors.Unavailable(f"could not {what}: no result after {timeout_s:.0f} s ({_short(command)})") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        last = "\n".join((err or out).decode(errors="replace").strip().splitlines()[-15:])
        raise errors.Terminal(f"could not {what}: {_short(command)} ended with code {child.returncode}\n{last}")
    return out.decode(errors="replace")


def _short(command: Sequence[str]) -> str:
    text = " ".join(shlex.join(command).split())
    return text if len(text) <= 160 else text[:157] + "..."
