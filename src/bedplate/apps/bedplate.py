"""The `bedplate` program: one command that finds all others.

In: the command line. Out: the exit code of the command that was named. Commands are imported when they are run, so
that `bedplate --help` and the API server's start do not pay for what they do not use.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

import bedplate
from bedplate.core import errors, logging

__all__ = ["main"]

# name -> (module, attribute, one-line help); the order is the order of `bedplate --help`.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "up": ("bedplate.apps.up", "up", "Run everything on this machine: API server, simulated nodes, controllers."),
    "apiserver": ("bedplate.apiserver.cli", "apiserver", "Run the embedded Kubernetes API server alone."),
    "kubectl": ("bedplate.apps.kubectl", "kubectl", "Run kubectl, from the PATH or from the cache."),
    "lab": ("bedplate.lab.cli", "lab", "Real multi-node Kubernetes on this machine."),
    "binaries": ("bedplate.lab.cli", "binaries", "Build and list Kubernetes programs in the cache."),
    "ccm": ("bedplate.apps.ccm", "ccm", "The cloud controller manager: run it, or ask why a node is as it is."),
    "ipam": ("bedplate.apps.ipam", "ipam", "Addresses for pods: pools, blocks, who holds an address, and why."),
    "head": ("bedplate.apps.head", "head", "The head node: make it, serve it, back it up, tokens and certificates."),
    "cmsh": ("bedplate.apps.cmsh", "cmsh", "The shell of the head node: one line, a file, or at a terminal."),
    "sim": ("bedplate.apps.sim", "sim", "Simulated nodes, and simulated NVIDIA BMM and Oxide clouds."),
    "doctor": ("bedplate.cli.doctor.command", "doctor", "Find what keeps the programs of a cluster from working."),
    "completion": ("bedplate.apps.completion", "completion", "Print a shell completion script."),
}

_LEVEL = click.IntRange(0, 10)

EXAMPLES = """
\b
Examples:
  bedplate up                                   a cluster of 50 simulated nodes, in ./.bedplate
  bedplate apiserver --data ./data --port 6443 --kubeconfig-out kubeconfig
  bedplate lab up --nodes 3                     real kubelets, containerd and DNS (needs root)
  bedplate lab kubectl -- get nodes
"""


def _accept_verbosity(command: click.Command) -> None:
    """Let `-v` stand behind the command too, where users of Kubernetes write it. Not where another program reads it."""
    if isinstance(command, click.Group):
        for one in command.commands.values():
            _accept_verbosity(one)
        if not command.invoke_without_command:
            return
    if not command.context_settings.get("ignore_unknown_options") and all(
        "-v" not in param.opts for param in command.params
    ):
        command.params.append(
            click.Option(
                ["-v", "--v"], type=_LEVEL, expose_value=False, hidden=True, is_eager=True, callback=_set_verbosity
            )
        )


def _set_verbosity(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    if value is not None:
        format_ = ctx.find_root().params.get("log_format", "text")
        logging.configure(logging.LogOptions(verbosity=value, format=format_, color=_color()))


def _color() -> bool | None:
    """False where the user wants none; None leaves it to whether the output is a terminal."""
    return False if os.environ.get("NO_COLOR") else None


@contextlib.contextmanager
def _as_shells_expect() -> Iterator[None]:
    """The exit codes that shells know for the two ways in which a command ends early; click would say 1 for both."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\nbedplate: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # What is still buffered must not fail once more while the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _as_shells_expect():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _as_shells_expect():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        _accept_verbosity(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as err:
            import difflib

            near = difflib.get_close_matches(args[0], list(COMMANDS), n=1)
            if not near:
                raise
            raise click.UsageError(f"{err.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(bedplate.__version__, prog_name="bedplate")
@click.option(
    "-v",
    "--v",
    "verbosity",
    type=_LEVEL,
    default=0,
    metavar="N",
    help="Log level, as in Kubernetes (0-10).",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How log lines look."
)
def root(verbosity: int, log_format: str) -> None:
    """Everything between bare metal and a working Kubernetes cluster."""
    click.get_current_context().color = _color()
    logging.configure(logging.LogOptions(verbosity=verbosity, format=log_format, color=_color()))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors become one message and an exit code, never a traceback (unless -v 4)."""
    try:
        root.main(arguments, prog_name="bedplate")
    except errors.BedplateError as err:
        if logging.verbosity() >= 4:
            raise
        click.echo("bedplate: " + errors.describe(err), err=True)
        sys.exit(err.exit_code)


if __name__ == "__main__":
    main()
