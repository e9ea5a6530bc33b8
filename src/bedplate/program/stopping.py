"""Running a program until Ctrl-C or SIGTERM, cleanly.

In: a coroutine. Out: it is run on uvloop; a signal cancels it and waits for its clean-up (at most as long as told), a
second one ends the process at once; a group of errors becomes its first one, so that an entry point has one thing to
show.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any

import uvloop

from bedplate.core import errors

__all__ = ["run_until_stopped"]


def run_until_stopped(main: Coroutine[Any, Any, None], *, stops_within_s: float | None = None) -> None:
    """Run; returns normally after a signal, raises the first `BedplateError` otherwise.

    `stops_within_s`: after a signal the process ends by then, with 0, even where something will not let go.
    """
    try:
        uvloop.run(_guarded(main, stops_within_s))
    except BaseExceptionGroup as group:
        # Not `except*`: what is raised inside it comes out in a group again on some releases of Python 3.11.
        error = errors.only(group)
        if error is None:
            raise
        raise error from error.__cause__


async def _guarded(main: Coroutine[Any, Any, None], stops_within_s: float | None) -> None:
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
        if stops_within_s is not None:
            # A thread, not the loop: what will not let go may be the loop's own end (a name that is being looked up).
            timer = threading.Timer(stops_within_s, os._exit, (0,))
            timer.daemon = True
            timer.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
