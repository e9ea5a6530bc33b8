"""A command line whose commands are imported when they are run, so that `--help` does not pay for all of them.

In: a table of commands. Out: a click group that accepts `-v` behind every command as Kubernetes' programs do, suggests
the command that was meant, and ends with the exit codes that shells expect.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from bedplate.core import errors, extras, logging

__all__ = ["LEVEL", "Entry", "LazyGroup", "color"]

LEVEL = click.IntRange(0, 10)
Entry = tuple[str, str, str]
"""Module, attribute, one-line help."""


def _accept_verbosity(command: click.Command) -> None:
    """Let `-v` stand behind the command too, where users of Kubernetes write it. Not where another program reads it."""
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _accept_verbosity(subcommand)
        if not command.invoke_without_command:
            return
    if not command.context_settings.get("ignore_unknown_options") and all(
        "-v" not in param.opts for param in command.params
    ):
        command.params.append(
            click.Option(
                ["-v", "--v"], type=LEVEL, expose_value=False, hidden=True, is_eager=True, callback=_set_verbosity
            )
        )


def _set_verbosity(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    if value is not None:
        format_ = ctx.find_root().params.get("log_format", "text")
        logging.configure(logging.LogOptions(verbosity=value, format=format_, color=color()))


def color() -> bool | None:
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


def _is_installed(module: str) -> bool:
    """Whether a command's module is here: the image holds managers and address management only."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed, in the order of the table."""

    def __init__(
        self, *args: Any, table: Mapping[str, Entry], needs: Mapping[str, Sequence[str]] | None = None, **extra: Any
    ) -> None:
        """`needs`: the extras that a command cannot do without."""
        super().__init__(*args, **extra)
        self._table = table
        self._needs = needs or {}

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _as_shells_expect():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _as_shells_expect():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (module, _, _) in self._table.items() if _is_installed(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, attribute, _ = self._table[cmd_name]
        extras.require(cmd_name, *self._needs.get(cmd_name, ()))
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as err:
            # The managers' image holds what managers need: the modules of other commands are not in it.
            if not (err.name or "").startswith("bedplate."):
                raise
            raise errors.Terminal(f"{cmd_name} is not part of this installation") from None
        _accept_verbosity(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as err:
            import difflib

            near = difflib.get_close_matches(args[0], list(self._table), n=1)
            if not near:
                raise
            raise click.UsageError(f"{err.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._table[name][2]) for name in self.list_commands(ctx)])
