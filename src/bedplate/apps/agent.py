"""The program `bedplate-agent`: the node agent. See `bedplate.cli.agent`."""

from __future__ import annotations

import sys

from bedplate.cli.agent import agent
from bedplate.core import errors, logging

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the agent's command line; errors become one message and an exit code."""
    logging.configure(logging.LogOptions())
    try:
        agent.main(arguments, prog_name="bedplate-agent")
    except errors.BedplateError as err:
        sys.stderr.write(f"bedplate-agent: {errors.describe(err)}\n")
        sys.exit(err.exit_code)


if __name__ == "__main__":
    main()
