"""`cmsh` as a child process without a terminal: -c, -f, standard input, exit codes, and which head it reaches."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest
from tests import forkserver
from tests.apps import headprograms
from tests.waiting import wait_until

from bedplate.api.headapi import Result
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.folder import creation, datafolder
from bedplate.ui.cmsh import targets, usersettings

TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A data folder nobody changes."""
    data = tmp_path_factory.mktemp("made") / "data"
    asyncio.run(creation.make(data, name="basecm10", nodes=3))
    return data


@pytest.fixture
def data(made: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A data folder of the test's own."""
    return pathlib.Path(shutil.copytree(made, tmp_path / "data"))


def environment(home: pathlib.Path, **more: str) -> dict[str, str]:
    """What a child sees: nothing of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BEDPLATE_", "XDG_"))}
    return kept | {"HOME": str(home), "TZ": "UTC"} | more


def cmsh(
    *words: str | pathlib.Path, home: pathlib.Path, stdin: str = "", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return forkserver.run(
        [sys.executable, "-m", "bedplate.apps.cmsh", *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(home, **(variables or {})),
        cwd=home,
    )


def is_running(pid: int) -> bool:
    """Whether a process is more than an entry that nobody has read yet."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_commands_of_one_line_share_their_place(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = cmsh("--data", data, "-c", "device use node001; get category", home=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "default\n", "")


def test_what_was_committed_is_there_in_the_next_session(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = cmsh("--data", data, "-c", "category use default; set notes kept; commit", home=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert cmsh("--data", data, "-c", "category; get notes", home=tmp_path).stdout == "kept\n"


def test_a_failing_command_keeps_no_other_from_running(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = cmsh("--data", data, "-c", "frobnicate; category use default; get softwareimage", home=tmp_path)
    assert done.returncode == 1
    assert done.stdout == "default-image\n"
    assert "frobnicate" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_staged_changes_are_dropped_with_a_warning_and_the_same_exit_code(
    data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = cmsh("--data", data, "-c", "category use default; set notes lost", home=tmp_path)
    assert done.returncode == 0
    assert "category[default]" in done.stderr
    assert "lost" not in done.stderr
    assert cmsh("--data", data, "-c", "category; get notes", home=tmp_path).stdout.strip() == ""


def test_quit_ends_a_script(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = cmsh("--data", data, "-c", "quit; device list", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_file_is_run_line_by_line_and_errors_name_the_line(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "changes.cmsh"
    script.write_text("# what we want\ncategory use default\nset notes good; commit\nset nothing 1\n\nget notes\n")
    done = cmsh("--data", data, "-f", script, home=tmp_path)
    assert done.returncode == 1
    assert done.stdout == "good\n"
    assert done.stderr.startswith(f"{script}:4: ")
    assert len(done.stderr.splitlines()) == 1


WRONG = ["device use node001", "device use nodeTYPO", "set notes x", "commit"]


def by_way(way: str, data: pathlib.Path, home: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the commands of `WRONG` out of an option, a file or a pipe."""
    if way == "-c":
        return cmsh(*words, "--data", data, "-c", "; ".join(WRONG), home=home)
    (home / "wrong.cmsh").write_text("\n".join(WRONG))
    if way == "-f":
        return cmsh(*words, "--data", data, "-f", home / "wrong.cmsh", home=home)
    return cmsh(*words, "--data", data, home=home, stdin="\n".join(WRONG))


@pytest.mark.parametrize("is_served", [False, True], ids=["folder", "daemon"])
@pytest.mark.parametrize("way", ["-c", "-f", "pipe"])
def test_a_failed_command_never_lets_a_commit_hit_another_object(
    way: str, is_served: bool, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with headprograms.served(data) if is_served else contextlib.nullcontext():
        done = by_way(way, data, tmp_path)
        assert done.returncode == 1
        assert "2 commands have failed since the last commit" in done.stderr
        quitting = by_way(way, data, tmp_path, "-q")
        assert quitting.returncode == 1
        assert len(quitting.stderr.splitlines()) == 1, "the first error ends it"
        assert "nodeTYPO" in quitting.stderr
        asked = "device foreach * (get notes); history -d ,"
        assert "x" not in cmsh("--data", data, "-c", asked, home=tmp_path).stdout.splitlines()


def test_status_and_health_are_known_with_a_daemon_and_after_it(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    async def report(daemon: headprograms.Served) -> None:
        async with daemon.client() as client:
            await client.report("node001", applied=1, results=[Result(check="Docker", status="FAIL", info="gone")])

    asked = "device status node00[1-2] -d ,; device health -d ,; events -d ,"
    with headprograms.served(data) as daemon:
        asyncio.run(report(daemon))
        served = cmsh("--data", data, "-c", asked, home=tmp_path)
        daemon.stop()
    alone = cmsh("--data", data, "-c", asked, home=tmp_path)
    for done in (served, alone):
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[1].startswith("node001,UP,FAIL,1,") and lines[1].endswith(",Docker: gone,,,")
        assert lines[2].startswith("node002,UNKNOWN,UNKNOWN,,")
        assert lines[4].startswith("node001,Docker,FAIL,")
        assert lines[6].endswith(",warning,node001,Check Docker failed: gone")


def test_a_file_that_is_missing_is_wrong_usage(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = cmsh("--data", data, "-f", tmp_path / "none", home=tmp_path)
    assert done.returncode == 2
    assert "none cannot be read" in done.stderr


@pytest.mark.parametrize("words", [(), ("-f", "-")])
def test_without_a_terminal_commands_come_from_standard_input(
    words: tuple[str, ...], data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = cmsh("--data", data, *words, home=tmp_path, stdin="device\nuse node002\nget ip")
    assert (done.returncode, done.stdout, done.stderr) == (0, "10.141.0.2\n", "")


def test_standard_input_may_be_a_file(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script"
    script.write_text("device use node001\nget ip\n")
    with script.open() as source:
        done = forkserver.run(
            [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(data)],
            stdin=source,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env=environment(tmp_path),
        )
    assert (done.returncode, done.stdout) == (0, "10.141.0.1\n")


def test_a_program_can_talk_with_a_shell_line_by_line(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with forkserver.Process(
        [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for node, address in (("node001", "10.141.0.1\n"), ("node003", "10.141.0.3\n")):
            child.stdin.write(f"device use {node}; get ip\n")
            child.stdin.flush()
            assert child.stdout.readline() == address
        child.stdin.close()
        assert child.wait(TIMEOUT_S) == 0


def test_children_of_a_script_do_not_eat_it(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = cmsh("--data", data, home=tmp_path, stdin="!cat\ndevice use node001\nget ip | tr . -\n")
    assert (done.returncode, done.stdout) == (0, "10-141-0-1\n")


@pytest.mark.parametrize(
    "words", [("-c", "device", "-f", "x"), ("--nonsense",), ("stray",), ("--cert", "x", "-c", "device")]
)
def test_wrong_usage_is_2(words: tuple[str, ...], data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = cmsh("--data", data, *words, home=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_no_heads_is_named_with_what_to_do(tmp_path: pathlib.Path) -> None:
    done = cmsh("--data", tmp_path / "none", "-c", "device", home=tmp_path)
    assert done.returncode == 1
    assert "bedplate head init" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_folder_may_come_from_the_environment_or_the_settings(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    variables = {"BEDPLATE_DATA": str(data)}
    assert cmsh("-c", "device; use node001; get ip", home=tmp_path, variables=variables).stdout == "10.141.0.1\n"
    (tmp_path / ".config" / "bedplate").mkdir(parents=True)
    (tmp_path / ".config" / "bedplate" / "cmsh.yaml").write_text(f"data: {data}\n")
    assert cmsh("-c", "device; use node001; get ip", home=tmp_path).stdout == "10.141.0.1\n"


def test_a_tree_in_an_etcd_is_refused_and_the_url_named(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (data / "head.yaml").write_text(
        "name: basecm10\nurl: https://head.example:8081\netcd:\n  endpoints: [https://etcd.example:2379]\n"
    )
    done = cmsh("--data", data, "-c", "device list", home=tmp_path)
    assert done.returncode == 2
    assert "--url https://head.example:8081" in done.stderr


async def test_a_folder_in_another_shells_hands_is_waited_for_and_then_refused(data: pathlib.Path) -> None:
    class Hasty(ManualClock):
        async def sleep(self, seconds: float) -> None:
            waiting = asyncio.create_task(super().sleep(seconds))
            await self.advance(seconds)
            await waiting

    target = usersettings.Target((), data, usersettings.Identity())
    said: list[str] = []
    by_us = pytest.raises(errors.Unavailable, match=f"in use by process {os.getpid()}")
    with datafolder.Folder(data).lock(), by_us as refused:
        async with targets.reach(target, said.append, clock=Hasty()):
            pass
    assert [f"process {os.getpid()}; waiting" in line for line in said] == [True]
    assert "bedplate head serve" in refused.value.hint


async def test_a_folder_that_a_daemon_serves_is_left_to_it_while_it_is_away(data: pathlib.Path) -> None:
    class Hasty(ManualClock):
        async def sleep(self, seconds: float) -> None:
            with datafolder.Folder(data).lock():  # nobody else has it
                waiting = asyncio.create_task(super().sleep(seconds))
                await self.advance(seconds)
                await waiting

    target = usersettings.Target((), data, usersettings.Identity())
    with pytest.raises(errors.Unavailable, match="no daemon serves") as refused:
        async with targets.reach(target, print, is_served=True, clock=Hasty()):
            pass
    assert "bedplate head serve" in refused.value.hint


def test_scripts_take_turns_where_no_daemon_serves(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(data), "-c"]
    running = [
        forkserver.Process([*command, f"category; add of{number}; commit"], env=environment(tmp_path))
        for number in range(4)
    ]
    assert [one.wait(TIMEOUT_S) for one in running] == [0, 0, 0, 0]
    shown = cmsh("--data", data, "-c", "category list; history -d {}", home=tmp_path).stdout
    assert all(f"\nof{number}\n" in shown for number in range(4))
    assert shown.count('"Revision"') == 5


def test_a_shell_behind_a_pipe_lets_others_work_and_a_script_outlives_it(
    data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    command = [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(data)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment(tmp_path)}
    with forkserver.Process(command, **pipes) as first:
        assert first.stdin is not None and first.stdout is not None
        first.stdin.write("device use node001; get ip\n")
        first.stdin.flush()
        assert first.stdout.readline() == "10.141.0.1\n"
        second = cmsh("--data", data, "-c", "device use node002; set notes second; commit; whoami", home=tmp_path)
        assert (second.returncode, second.stderr) == (0, "")
        (tmp_path / "linger").write_text("touch met; until test -e left; do sleep 0.1; done\n")
        going = "device use node002; get notes; !sh linger; set notes x; commit"
        with forkserver.Process([*command, "-c", going], **pipes, cwd=tmp_path) as third:
            wait_until((tmp_path / "met").exists, "the script is under way")
            first.stdin.close()
            assert first.wait(TIMEOUT_S) == 0
            (tmp_path / "left").touch()
            assert third.wait(TIMEOUT_S) == 0
    shown = cmsh("--data", data, "-c", "device use node002; get notes; history -d {}", home=tmp_path).stdout
    assert shown.startswith("x\n") and shown.count('"Revision"') == 3


def test_a_reader_that_leaves_early_gets_no_traceback(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    line = f'"{sys.executable}" -m bedplate.apps.cmsh --data "{data}" -f script | head -n 1'
    (tmp_path / "script").write_text("device list\n" * 2000)
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(tmp_path),
        cwd=tmp_path,
    )
    assert done.stdout.startswith("Hostname (key)")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("<&-", 0, ""),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">/dev/full", 1, "cmsh: the output cannot be written: No space left on device\n"),
    ],
)
def test_streams_that_are_closed_or_full_cause_no_traceback(
    redirected: str, code: int, said: str, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    line = f'"{sys.executable}" -m bedplate.apps.cmsh --data "{data}" -c "device list" {redirected}'
    done = subprocess.run(
        ["/bin/sh", "-c", line], capture_output=True, text=True, timeout=TIMEOUT_S, env=environment(tmp_path)
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_a_cold_line_loads_neither_the_terminal_nor_the_client(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    program = (
        "import sys\nfrom bedplate.apps.cmsh import main\n"
        "try:\n    main()\nfinally:\n"
        "    heavy = 'prompt_toolkit aiohttp rich cryptography jinja2 grpc'.split()\n"
        "    print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--data", str(data), "-c", "category use default; set notes x; commit; list"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(tmp_path),
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_an_interrupted_script_ends_its_children_and_says_130(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bedplate.apps.cmsh",
        "--data",
        str(data),
        "-c",
        "!sh -c 'echo $$; exec sleep 600'",
    ]
    with forkserver.Process(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as shell:
        assert shell.stdout is not None
        child = int(shell.stdout.readline())
        shell.send_signal(signal.SIGINT)
        _, said = shell.communicate(timeout=TIMEOUT_S)
    assert (shell.returncode, said) == (130, "")
    wait_until(lambda: not is_running(child), "the command has ended")


def test_an_internal_error_is_one_line_without_what_was_typed(
    data: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bedplate.ui.cmsh import running
    from bedplate.ui.cmsh.shell import Shell

    async def broken(self: Shell, text: str) -> int:
        raise ValueError(text)

    monkeypatch.setattr(Shell, "run_line", broken)

    async def run(*, is_verbose: bool) -> int:
        async with targets.reach(usersettings.Target((), data, usersettings.Identity()), print) as reached:
            return await running.script(reached, running.of_text("set token hush"), is_verbose=is_verbose)

    assert asyncio.run(run(is_verbose=False)) == 1
    said = capsys.readouterr().err
    assert said.startswith("internal error (ValueError)")
    assert "hush" not in said
    assert asyncio.run(run(is_verbose=True)) == 1
    said = capsys.readouterr().err
    assert "test_cmsh_scripts.py" in said
    assert "hush" not in said.replace("raise ValueError(text)", "")


def test_help_shows_groups_examples_and_what_the_environment_may_say(tmp_path: pathlib.Path) -> None:
    done = cmsh("--help", home=tmp_path)
    assert done.returncode == 0
    for part in (
        "What to run:",
        "Which head:",
        "As whom:",
        "Examples:",
        "BEDPLATE_URL",
        "~/.config/bedplate",
        "Exit codes:",
    ):
        assert part in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(shell: str, tmp_path: pathlib.Path) -> None:
    done = cmsh("--completion", shell, home=tmp_path)
    assert done.returncode == 0
    assert "_CMSH_COMPLETE" in done.stdout
