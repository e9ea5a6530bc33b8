"""`ipam-node --help`: every flag in its section, with examples.

In: the name of the program. Out: text. Pure.
"""

from __future__ import annotations

from bedplate.ipam.node.options import Options
from bedplate.program import options

__all__ = ["full"]

_ABOUT = (
    "Gives addresses of this node's blocks to pods: answers the CNI plugin nv-ipam on a socket, keeps every "
    "reservation on the disk before it is acknowledged, and frees those whose owners are proven dead. Also installs "
    "the plugin and its configuration. While the API server is away, pools that the store remembers are served."
)
_EXITS = (
    "Exit code: 0 after SIGTERM or SIGINT (a second one ends it at once), 1 for everything else: a wrong command line, "
    "a store that cannot be used, a part that failed."
)
_EXAMPLES = (
    "--node-name=worker-1 --kubeconfig=admin.conf --v=1",
    "--node-name=$NODE_NAME --ippools-namespace=kube-system --cri-socket=unix:///run/containerd/containerd.sock",
    "--node-name=worker-1 --bind-address=tcp://127.0.0.1:9092 --cni-daemon-socket=127.0.0.1:9092",
    "--node-name=worker-1 --static-ip-check=refuse --cleaner=off",
)


def full(program: str) -> str:
    """The whole help text."""
    return options.help_text(program, (_ABOUT, _EXITS), _EXAMPLES, Options())
