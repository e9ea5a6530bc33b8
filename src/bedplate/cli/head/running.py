"""What every command of `bedplate head` has: the data folder as an option, and the way its work is run.

In: a coroutine. Out: its result, without the log lines of a daemon; a command that is told to end cleans up first.
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from bedplate.core import logging
from bedplate.ui.cmsh.usersettings import DEFAULT_DATA

__all__ = ["data_option", "is_loopback", "run"]

T = TypeVar("T")

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="BEDPLATE_DATA",
    default=DEFAULT_DATA,
    show_default=True,
    help="The head's data folder.",
)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do it and give its answer, without the log lines that are a daemon's to write.

    Who is told to end cleans up first: a folder half made must not stay behind.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if logging.verbosity() == 0:
        logging.configure(logging.LogOptions(is_quiet=True))
    return asyncio.run(work)


def is_loopback(host: str) -> bool:
    """Whether only this machine is reached by that name."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
