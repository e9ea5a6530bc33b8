"""The `bedplate` command itself: help, completion, misspelt commands, errors without tracebacks."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click import testing
from tests import forkserver, programs, servers
from tests.apps.test_help import SCRIPTS
from tests.apps.tmux import terminal
from tests.waiting import DEADLINE_S

from bedplate.apps import bedplate as program
from bedplate.apps.bedplate import COMMANDS
from bedplate.core import logging


def bedplate(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(servers.bedplate_program()), *arguments]
    return forkserver.run(command, capture_output=True, text=True, timeout=60, cwd=cwd, check=False)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "kubectl"])
def test_every_command_has_help(command: str) -> None:
    done = bedplate(command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: bedplate " + command in done.stdout


def test_help_lists_every_command_with_examples() -> None:
    text = bedplate("--help").stdout
    assert all(f"  {name}" in text for name in COMMANDS)
    assert "Examples:" in text


def test_a_misspelt_command_is_pointed_to_the_right_one() -> None:
    done = bedplate("apisever")
    assert done.returncode == 2
    assert "Did you mean 'apiserver'?" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    done = bedplate("completion", shell)
    assert done.returncode == 0
    for name in ("_BEDPLATE_COMPLETE", "_CMSH_COMPLETE", "_CLOUDLYCKE_LB_AGENT_COMPLETE"):
        assert name in done.stdout
    for name in ("oxide-cloud-controller-manager", "ipam-controller", "ipam-node"):
        script = bedplate("completion", shell, "--program", name).stdout
        assert script in done.stdout and name in script
        assert "feature-gates" in script and script.count("'") % 2 == 0
    for name in SCRIPTS:
        registers = rf"(?m)^\s*(?:complete (?:.* )?|compdef \S+ ){re.escape(name)}(?: |;|$)"
        assert re.search(registers, done.stdout), f"{shell} does not complete {name}"


COMPLETIONS = """
set -e
source /dev/stdin <<< "$($1 completion bash)"
complete -p ipam-node oxide-cloud-controller-manager cmsh bedplate > /dev/null
compgen -W "$(complete -p ipam-node | sed "s/.*-W '//; s/'.*//")" -- --node-n
COMP_WORDS=(cmsh --da) COMP_CWORD=1
_cmsh_completion cmsh
echo "${COMPREPLY[@]}"
"""


@pytest.mark.external
def test_bash_completes_flags_and_options(tmp_path: Path) -> None:
    folder = Path(sys.executable).parent
    environ = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(tmp_path)}
    command = [str(programs.on_path("bash")), "-c", COMPLETIONS, "bash", str(folder / "bedplate")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["--node-name", "--data"]), done.stderr


# A program that is asked while people type, and one whose flags are in the script; and what TAB makes of each.
TYPED = (("cmsh --dat", "cmsh --data"), ("ipam-node --node-n", "ipam-node --node-name"))


def people(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody whose programs are on the PATH, with a home of the test's own."""
    return {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}


@pytest.mark.external
@pytest.mark.parametrize(("typed", "completed"), TYPED)
def test_fish_completes_flags_and_options(typed: str, completed: str, tmp_path: Path) -> None:
    script = f"bedplate completion fish | source; complete -C '{typed}'"
    command = [str(programs.on_path("fish")), "--no-config", "--command", script]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=people(tmp_path), timeout=DEADLINE_S
    )
    # A candidate in each line, with what it is about behind a tab.
    candidates = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert (candidates, done.stderr) == ([completed.split()[-1]], "")


@pytest.mark.external
@pytest.mark.parametrize("is_file", [False, True], ids=["by eval", "from fpath"])
@pytest.mark.parametrize(("typed", "completed"), TYPED)
def test_zsh_completes_flags_and_options(typed: str, completed: str, is_file: bool, tmp_path: Path) -> None:
    rc = "autoload -U compinit && compinit -u -D\n"
    program = typed.split()[0]
    if is_file:
        (tmp_path / f"_{program}").write_text(bedplate("completion", "zsh", "--program", program).stdout)
        rc = f"fpath=({tmp_path} $fpath)\n{rc}"
    else:
        rc += 'eval "$(bedplate completion zsh)"\n'
    (tmp_path / ".zshrc").write_text(f"PS1='ready> '\n{rc}")
    environ = people(tmp_path)
    # tmux gives its own PATH to what it starts.
    command = ["env", f"PATH={environ['PATH']}", str(programs.on_path("zsh")), "-i"]
    with terminal(command, environ) as screen:
        screen.wait_prompt("ready> ")
        screen.type(typed)
        screen.press("Tab")
        # `=` and the blank behind a flag are the shell's own.
        screen.wait(lambda screen: screen.last().rstrip("= ") == f"ready> {completed}", f"{completed} after TAB")


def test_an_error_is_one_message_with_a_hint_and_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = bedplate("apiserver", "--data", str(tmp_path / "file"), "--port", "0")
    assert done.returncode == 2
    assert done.stderr.startswith("bedplate: cannot use ")
    assert "next: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_has_the_exit_code_that_shells_give_it() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [str(servers.bedplate_program()), "--help"], stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_command_that_is_interrupted_says_so_with_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def wait() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program.root, "get_command", lambda ctx, name: wait)
    with pytest.raises(SystemExit) as stopped:
        program.main(["up"])
    assert stopped.value.code == 130


@pytest.mark.parametrize(
    "arguments", [["-v", "5", "wait"], ["wait", "-v", "5"], ["wait", "--v=5"], ["-v", "2", "wait", "-v5"]]
)
def test_the_log_level_may_stand_before_or_after_the_command(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    @click.command()
    def wait() -> None:
        click.echo(f"level {logging.verbosity()}")

    monkeypatch.setattr(program, "wait", wait, raising=False)
    monkeypatch.setitem(COMMANDS, "wait", ("bedplate.apps.bedplate", "wait", ""))
    try:
        done = testing.CliRunner().invoke(program.root, arguments)
    finally:
        logging.configure(logging.LogOptions())
    assert done.output == "level 5\n"


def test_the_log_level_of_kubectl_is_kubectls(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr("os.execve", lambda program, arguments, environ: given.extend(arguments))
    monkeypatch.setattr("bedplate.cli.kubectl._find", lambda: "kubectl")
    testing.CliRunner().invoke(program.root, ["kubectl", "get", "nodes", "-v", "6"])
    assert given == ["kubectl", "get", "nodes", "-v", "6"]


@pytest.mark.parametrize(("wish", "is_coloured"), [("", True), ("1", False)])
def test_a_terminal_shows_no_colours_to_whom_wants_none(wish: str, is_coloured: bool, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        words = ["doctor", "--cloud-provider", "nvidia-bmm", "--kubeconfig", str(tmp_path / "none")]
        command = [str(servers.bedplate_program()), *words]
        # Short enough for the terminal to keep until it is read.
        subprocess.run(
            command, env=os.environ | {"NO_COLOR": wish}, stdout=theirs, stderr=theirs, timeout=60, check=False
        )
        shown = os.read(ours, 65536)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"WRONG" in shown
    assert (b"\x1b[" in shown) == is_coloured
