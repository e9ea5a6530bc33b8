"""How many files and connections this process may have open.

In: how many it is going to need. Out: the limit that holds from now on, for this process and those that it starts; how
many are open.
Systems give a process 1,024 unless it asks for more; who keeps a connection for each node of a site has to ask.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import NamedTuple

__all__ = ["Usage", "raise_limit", "usage"]


class Usage(NamedTuple):
    """How many files and connections are open, and how many may be."""

    opened: int
    limit: int


def usage() -> Usage:
    """How it is now. Where not even this question can be asked, none is left."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limit = limit if limit != resource.RLIM_INFINITY else 1 << 20
    try:
        # One of them is that of the folder which is being read.
        return Usage(len(os.listdir("/proc/self/fd")) - 1, limit)
    except OSError as err:
        return Usage(limit if err.errno in (errno.EMFILE, errno.ENFILE) else 0, limit)


def raise_limit(needed: int = 0) -> int:
    """Take what the system allows, and more where this process may allow it to itself. The limit that holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        # The kernel has a largest number below that, so that it is not taken as it is.
        hard = max(soft, needed, 1 << 20)
    for limit in (max(needed, hard), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit if limit > hard else hard))
        except (ValueError, OSError):
            continue
        return limit
    return soft
