"""The program `jupyter-kernel-operator`: pods for Jupyter kernels. See `bedplate.operators.jupyter.process`."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the program with the flags of the command line."""
    from bedplate.operators.jupyter import process

    sys.exit(process.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
