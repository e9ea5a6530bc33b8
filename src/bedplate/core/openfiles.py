"""How many files and connections this process may have open.

In: how many it is going to need. Out: the limit that holds from now on, for this process and those that it starts.
Systems give a process 1,024 unless it asks for more; who keeps a connection for each node of a site has to ask.
"""

from __future__ import annotations

import resource

__all__ = ["raise_limit"]


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
