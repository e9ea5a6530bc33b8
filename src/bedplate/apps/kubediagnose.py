"""The program `cm-kube-diagnose`: one report of how a Kubernetes cluster stands. See `bedplate.setup.diagnose`."""

from __future__ import annotations

from bedplate.setup.diagnose.command import PROGRAM, command

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the program with these words, or with those of the command line."""
    command.main(arguments, prog_name=PROGRAM)


if __name__ == "__main__":
    main()
