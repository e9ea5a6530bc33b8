"""The program `permissions-manager`: people on a cluster. See `bedplate.operators.permissions.process`."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the program with the flags of the command line."""
    from bedplate.operators.permissions import process

    sys.exit(process.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
