"""`bedplate completion SHELL`: prints the script that gives a shell tab completion.

In: the name of a shell. Out: the script on standard output; the command line itself is asked for candidates later.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]


EXAMPLES = """
\b
Examples:
  eval "$(bedplate completion bash)"
  bedplate completion fish > ~/.config/fish/completions/bedplate.fish
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells of the choice above"
    click.echo(kind(ctx.find_root().command, {}, "bedplate", "_BEDPLATE_COMPLETE").source())
