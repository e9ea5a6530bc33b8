"""Programs that tests fork behave as those that a shell starts: output, exit codes, signals, and their end."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
from concurrent import futures

import pytest
from tests import forkserver, servers
from tests.waiting import DEADLINE_S, wait_until

BEDPLATE = str(servers.bedplate_program())
ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(
    "words", [["--version"], ["nonsense"], ["completion", "bash"], ["head", "status", "--data", "."]]
)
def test_output_and_exit_code_are_those_of_a_process(words: list[str], tmp_path: pathlib.Path) -> None:
    forked = forkserver.run([BEDPLATE, *words], capture_output=True, text=True, cwd=tmp_path, timeout=DEADLINE_S)
    started = subprocess.run([BEDPLATE, *words], capture_output=True, text=True, cwd=tmp_path, timeout=DEADLINE_S)
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_a_process_sees_the_environment_it_was_given_and_no_other(tmp_path: pathlib.Path) -> None:
    (tmp_path / "shown.py").write_text("import json, os\ndef main():\n    print(json.dumps(dict(os.environ)))\n")
    command = [sys.executable, "-m", "shown"]
    done = forkserver.run(command, capture_output=True, text=True, cwd=tmp_path, env={"ONLY": "this"})
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"ONLY": "this"}\n', "")


def test_signals_reach_a_process_and_its_end_is_told(tmp_path: pathlib.Path) -> None:
    command = [BEDPLATE, "apiserver", "--data", str(tmp_path), "--port", "0"]
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        with forkserver.Process(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None and "apiserver.ready" in process.stderr.readline()
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait(DEADLINE_S) == code == process.returncode


def test_the_end_can_be_waited_for_in_one_thread_and_looked_for_in_another(tmp_path: pathlib.Path) -> None:
    with (
        forkserver.Process([BEDPLATE, "apiserver", "--data", str(tmp_path), "--port", "0"]) as process,
        futures.ThreadPoolExecutor(1) as aside,
    ):
        waiting = aside.submit(process.wait, DEADLINE_S)
        assert process.poll() is None
        process.kill()
        assert waiting.result() == -signal.SIGKILL == process.poll()


def test_processes_end_with_a_test_process_that_is_killed(tmp_path: pathlib.Path) -> None:
    program = f"""
        import sys, time
        from tests import forkserver
        words = ["apiserver", "--data", {str(tmp_path)!r}, "--port", "0"]
        print(forkserver.Process([{BEDPLATE!r}, *words]).pid, flush=True)
        time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        os.kill(pid, 0)
        tests.kill()
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}/cmdline").exists(), "the program is gone")


def test_a_program_of_the_same_name_elsewhere_is_not_ours(tmp_path: pathlib.Path) -> None:
    """The originals' programs are called as ours are; what runs must be theirs."""
    folder = pathlib.Path(BEDPLATE).parent
    (tmp_path / "linked").symlink_to(folder)
    for name in ("bedplate", "ipam-node", "ipam-controller", "oxide-cloud-controller-manager"):
        assert forkserver.is_ours([folder / name, "--help"])
        assert forkserver.is_ours([tmp_path / "linked" / name])
        assert not forkserver.is_ours([tmp_path / name, "--help"])
    assert not forkserver.is_ours([folder / "python", "-c", ""])
