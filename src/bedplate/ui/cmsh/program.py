"""`cmsh`: the management shell, at a terminal or for one line, a file or a pipe.

In: the command line, the environment, `~/.config/bedplate`. Out: what the commands say, and an exit code: 0 all well,
1 a command failed or no head could be reached, 2 wrong usage, 3 `plan` found something to do. A daemon is asked over
REST where one serves; else the head of the data folder runs in this process, under the folder's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import click

import bedplate
from bedplate.core import errors, logging
from bedplate.ui.cmsh import usersettings

__all__ = ["cmsh"]

EXAMPLES = """
\b
Examples:
  cmsh --data /var/lib/bedplate/head                       at a terminal: TAB completes, help explains
  cmsh -c "category use default; set softwareimage gpu; commit"
  cmsh -c "device list -d {}"                              JSON for programs
  cmsh -q -f changes.cmsh                                  commands from a file, one or more in a line
  echo "device; list" | cmsh                               commands from a pipe
  cmsh --url https://head1:8081 --url https://head2:8081   whichever of two heads is active
  eval "$(cmsh --completion bash)"                         completion of these options
"""

ENVIRONMENT = """
\b
Defaults come from these variables, then from ~/.config/bedplate/cmsh.yaml (url, data, token-file, cert, key, cacert):
  BEDPLATE_URL, BEDPLATE_DATA, BEDPLATE_TOKEN_FILE, BEDPLATE_CERT, BEDPLATE_KEY, BEDPLATE_CACERT, NO_COLOR
\b
A shell at a terminal first runs the commands in ~/.config/bedplate/cmshrc: aliases, for example.
\b
Exit codes: 0 success, 1 a command failed, 2 wrong usage, 3 plan found something to do.
"""

_GROUPS = {
    "What to run": ("command", "file", "quits"),
    "Which head": ("urls", "data"),
    "As whom": ("token_file", "cert", "key", "cacert"),
}


class _Grouped(click.Command):
    """A command whose help shows its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        params = {param.name: param for param in self.get_params(ctx)}
        for title, names in _GROUPS.items():
            self._section(ctx, formatter, title, [params.pop(name) for name in names])
        self._section(ctx, formatter, "Other options", list(params.values()))

    @staticmethod
    def _section(
        ctx: click.Context, formatter: click.HelpFormatter, title: str, params: Sequence[click.Parameter]
    ) -> None:
        rows = [row for row in (param.get_help_record(ctx) for param in params) if row is not None]
        with formatter.section(title):
            formatter.write_dl(rows)


def _print_completion(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells of the choice"
    click.echo(kind(ctx.command, {}, "cmsh", "_CMSH_COMPLETE").source())
    ctx.exit()


_path = click.Path(path_type=pathlib.Path)


@click.command(
    "cmsh",
    cls=_Grouped,
    epilog=ENVIRONMENT + EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("-c", "command", metavar="COMMANDS", help='Run these ("a; b") and exit.')
@click.option("-f", "file", type=_path, metavar="FILE", help="Run the commands in FILE and exit; - is standard input.")
@click.option("-q", "--quit", "quits", is_flag=True, help="Exit at the first command that fails.")
@click.option(
    "--url", "urls", multiple=True, metavar="URL", help="URL of a daemon; repeat it for every head of a site."
)
@click.option("--data", type=_path, metavar="DIR", help="The data folder of a head on this machine.")
@click.option("--token-file", type=_path, metavar="FILE", help="Bearer token.")
@click.option("--cert", type=_path, metavar="FILE", help="Client certificate.")
@click.option("--key", type=_path, metavar="FILE", help="Its key.")
@click.option("--cacert", type=_path, metavar="FILE", help="The authority that signed the daemon's certificate.")
@click.option(
    "-v", "--verbose", "verbosity", count=True, help="Log what is done (-vv: more), and show tracebacks of errors."
)
@click.option(
    "--completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    is_eager=True,
    expose_value=False,
    callback=_print_completion,
    help="Print a completion script for that shell.",
)
@click.version_option(bedplate.__version__, prog_name="cmsh")
def cmsh(
    command: str | None,
    file: pathlib.Path | None,
    quits: bool,
    urls: tuple[str, ...],
    data: pathlib.Path | None,
    token_file: pathlib.Path | None,
    cert: pathlib.Path | None,
    key: pathlib.Path | None,
    cacert: pathlib.Path | None,
    verbosity: int,
) -> None:
    """The shell of the head node: look at and change the tree of devices, categories, roles and clusters."""
    if command is not None and file is not None:
        raise click.UsageError("-c and -f are mutually exclusive")
    _replace_closed_streams()
    color = False if os.environ.get("NO_COLOR") else None
    logging.configure(logging.LogOptions(verbosity=2 * verbosity, is_quiet=not verbosity, color=color))
    identity = usersettings.Identity(token_file, cert, key, cacert)
    with _failures_told(verbosity):
        flags = usersettings.Flags(urls, data, identity)
        target = usersettings.choose(flags, os.environ, pathlib.Path.home())
        code = asyncio.run(_main(target, command, file, is_verbose=bool(verbosity), quits=quits))
    sys.exit(code)


async def _main(
    target: usersettings.Target, command: str | None, file: pathlib.Path | None, *, is_verbose: bool, quits: bool
) -> int:
    from bedplate.ui.cmsh import running, targets

    def say(text: str) -> None:
        click.echo(f"cmsh: {text}", err=True)

    has_script = command is not None or file is not None
    is_attended = not has_script and running.is_terminal(sys.stdin) and running.is_terminal(sys.stdout)
    # Whoever is typed to, by people or by another program, stays for long; a script ends, and others wait for that.
    async with targets.reach(target, say, shares=not has_script) as reached:
        if command is not None:
            return await running.script(reached, running.of_text(command), is_verbose=is_verbose, quits=quits)
        if file is not None and str(file) != "-":
            return await running.script(reached, running.of_file(file), is_verbose=is_verbose, quits=quits)
        if is_attended:
            history = usersettings.history_file(os.environ, pathlib.Path.home())
            return await running.interactive(reached, history, is_verbose=is_verbose, quits=quits)
        lines = running.of_stream(sys.stdin)
        return await running.script(reached, lines, is_verbose=is_verbose, is_long=True, quits=quits)


def _replace_closed_streams() -> None:
    """Python has no stream where the caller closed one; what is said there goes nowhere."""
    if sys.stdout is None:
        sys.stdout = io.StringIO()
    if sys.stderr is None:
        sys.stderr = io.StringIO()


@contextlib.contextmanager
def _failures_told(verbosity: int) -> Any:
    """Errors as one message and an exit code; a traceback only for who asked for more words."""
    try:
        yield
    except errors.BedplateError as err:
        if verbosity:
            import traceback

            traceback.print_exc()
        click.echo("cmsh: " + errors.describe(err), err=True)
        sys.exit(2 if isinstance(err, errors.Invalid) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except asyncio.CancelledError:
        sys.exit(143)  # a terminal's shell that was asked to end
    except OSError as err:
        # What is still buffered must not fail once more while the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(err, BrokenPipeError):
            sys.exit(141)
        click.echo(f"cmsh: the output cannot be written: {err.strerror}", err=True)
        sys.exit(1)
