"""Claims on networks of this machine, so that two labs that start in the same moment never choose the same.

In: a network. Out: a claim that lasts until it is closed or its process ends. A claim is a name in the kernel's list of
local sockets: taken by one process at a time, gone with it, nothing to clean up, whichever folders the labs use.
"""

from __future__ import annotations

import socket

from bedplate.lab.plan import Network

__all__ = ["claim"]


def claim(network: Network) -> socket.socket | None:
    """Hold the network for this process; None when another process holds it."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A leading zero byte makes the name abstract: no file is made.
        name.bind(f"\0bedplate-lab-network-{network}")
    except OSError:
        name.close()
        return None
    return name
