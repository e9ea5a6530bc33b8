"""`ipam-node` as a program: its options, its help, its daemon."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any

from bedplate.core import logging
from bedplate.ipam.node import install, usage
from bedplate.ipam.node.options import Options, path_problems, read
from bedplate.program import process
from bedplate.program.process import Program

__all__ = ["PROGRAM", "main"]


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
    usage=lambda: usage.full("ipam-node"),
    start=_start,
    check=_check,
    facts=_facts,
)


def main(words: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return process.main(PROGRAM, words)
