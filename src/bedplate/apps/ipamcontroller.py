"""The program `ipam-controller`: blocks of addresses for nodes, and the webhook that judges pools.

In: the command line, the environment. Out: an exit code. What it does is in `bedplate.ipam.controller`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, NoReturn

__all__ = ["main", "run"]

STOPS_WITHIN_S = 9.0


def main() -> NoReturn:
    """The program."""
    run(sys.argv[1:])


def run(words: Sequence[str]) -> NoReturn:
    """The program with these flags."""
    from bedplate.ipam.controller import process

    sys.exit(process.run(words, dict(os.environ), _until_stopped, sys.stdout, sys.stderr))


def _until_stopped(main: Coroutine[Any, Any, None]) -> None:
    from bedplate.apps import stopping

    stopping.run_until_stopped(main, stops_within_s=STOPS_WITHIN_S)


if __name__ == "__main__":
    main()
