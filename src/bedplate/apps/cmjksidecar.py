"""The program `cmjksidecar`: a kernel and its gateway. See `bedplate.operators.jupyter.sidecar.process`."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the program with the flags of the command line."""
    from bedplate.operators.jupyter.sidecar import process

    sys.exit(process.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
