"""The program `ipam-node`: addresses for the pods of one node. See `bedplate.ipam.node.process`."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the program with the flags of the command line."""
    # What is made while the program starts, stays: the daemon enables it once it listens.
    gc.disable()
    from bedplate.ipam.node import process

    sys.exit(process.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
