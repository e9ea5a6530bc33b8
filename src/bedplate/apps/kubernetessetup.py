"""The program `cm-kubernetes-setup`: Kubernetes clusters on managed nodes. See `bedplate.setup.tool.command`."""

from __future__ import annotations

from bedplate.setup.tool.command import PROGRAM, command

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the program with these words, or with those of the command line."""
    command.main(arguments, prog_name=PROGRAM)


if __name__ == "__main__":
    main()
