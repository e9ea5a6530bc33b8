"""`ipam-node` as a program: its options, its help, its daemon."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any

from bedplate.core import logging
from bedplate.ipam.node import install
from bedplate.ipam.node.options import Options, path_problems, read
from bedplate.program import process
from bedplate.program.options import help_text
from bedplate.program.process import Program

__all__ = ["PROGRAM", "main"]

_ABOUT = (
    "Allocates addresses from this node's blocks to pods: serves the CNI plugin nv-ipam on a socket, writes every "
    "reservation to disk before acknowledging it, and frees those whose owners are proven dead. Also installs the "
    "plugin and its configuration. While the API server is unavailable, pools recorded in the store are served."
)
_EXITS = (
    "Exit code: 0 after SIGTERM or SIGINT (a second one stops it immediately), 1 for everything else: a wrong "
    "command line, a store that cannot be used, a component that failed."
)
_EXAMPLES = (
    "--node-name=worker-1 --kubeconfig=admin.conf --v=1",
    "--node-name=$NODE_NAME --ippools-namespace=kube-system --cri-socket=unix:///run/containerd/containerd.sock",
    "--node-name=worker-1 --bind-address=tcp://127.0.0.1:9092 --allow-tcp --cni-daemon-socket=127.0.0.1:9092",
    "--node-name=worker-1 --static-ip-check=refuse --cleaner=off",
)


def _check(options: Options) -> Iterator[str]:
    return path_problems(options, install.find_plugin(options.cni))


def _facts(options: Options) -> Mapping[str, object]:
    return {"node": options.daemon.node_name, "pools_namespace": options.daemon.ippools_namespace}


def _start(options: Options, environ: Mapping[str, str]) -> Coroutine[Any, Any, None]:
    from bedplate.ipam.node.daemon import Daemon

    return Daemon(options, environ, install.find_plugin(options.cni)).run()


PROGRAM: Program[Options] = Program(
    name="ipam-node",
    log=logging.get_logger("ipam.node"),
    part="daemon",
    read=read,
    usage=lambda: help_text("ipam-node", (_ABOUT, _EXITS), _EXAMPLES, Options()),
    start=_start,
    check=_check,
    facts=_facts,
)


def main(words: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return process.main(PROGRAM, words)
