"""Running a program until Ctrl-C or SIGTERM, cleanly.

In: a coroutine. Out: it is run on uvloop; a signal cancels it and waits for its clean-up, a second one ends the process
at once; a group of errors becomes its first one, so that an entry point has one thing to show.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any

import uvloop

from bedplate.core import errors

__all__ = ["run_until_stopped"]


def run_until_stopped(main: Coroutine[Any, Any, None]) -> None:
    """Run; returns normally after a signal, raises the first `BedplateError` otherwise."""
    try:
        uvloop.run(_guarded(main))
    except BaseExceptionGroup as group:
        # Not `except*`: what is raised inside it comes out in a group again on some releases of Python 3.11.
        found = errors.only(group)
        if found is None:
            raise
        raise found from found.__cause__


async def _guarded(main: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main)
    stopped = False

    def stop(number: int) -> None:
        nonlocal stopped
        if stopped:
            # Half a clean-up must not look like a whole one, and whoever asks twice does not want to wait.
            os._exit(128 + number)
        stopped = True
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
