"""For all tests of address management: what is logged, and the plugin's default log left as it was found.

A call whose configuration cannot be read has nowhere else to log, in the original and in ours.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.core import logging

LOG = Path("/var/log/nv-ipam-cni.log")


@pytest.fixture(scope="session", autouse=True)
def _default_log() -> Iterator[None]:
    size = LOG.stat().st_size if LOG.exists() else None
    yield
    # Another worker may have tidied up already.
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if size is None:
            LOG.unlink()
        else:
            os.truncate(LOG, size)


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    """What this process logs, wherever tests before this one have sent it."""
    out = io.StringIO()
    logging.configure(logging.LogOptions(), out)
    yield out
    logging.configure(logging.LogOptions())
