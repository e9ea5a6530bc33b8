"""The program `cmsh`: the management shell. See `bedplate.ui.cmsh.program`."""

from __future__ import annotations

import sys

from bedplate.core import extras
from bedplate.ui.cmsh.program import cmsh

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the shell with these words, or with those of the command line."""
    try:
        extras.require("cmsh", "head")
    except extras.MissingExtra as err:
        sys.exit(str(err))
    cmsh.main(arguments, prog_name="cmsh")


if __name__ == "__main__":
    main()
