"""Every command and every program shows examples in its help, and they are command lines that exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests import forkserver
from tests.apps.managers import program

from bedplate.apps.bedplate import root

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"])


def commands(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield ctx.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None
            yield from commands(child, click.Context(child, info_name=name, parent=ctx))


COMMANDS = dict(commands(root, click.Context(root, info_name="bedplate")))


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_command_has_examples_of_itself(path: str) -> None:
    command = COMMANDS[path]
    text = command.get_help(click.Context(command, info_name=path))
    examples = text.partition("Example")[2]
    assert examples, f"{path} --help has no examples"
    # On a machine that has the agent alone its commands belong to a program of that name.
    names = (path, path.replace("bedplate agent ", "bedplate-agent "))
    lines = re.split(r"\n|Example:", examples)
    own = [line for line in lines if any(name in line for name in names) or "completion" in path]
    assert own or (path == "bedplate cmsh" and "cmsh " in examples), f"no example of {path} is about it"


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_program_shows_examples(name: str, tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = forkserver.run([program(name), "--help"], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0
    assert re.search(rf"Examples?:.*{re.escape(name)} ", done.stdout, re.DOTALL), done.stdout[-1500:]
