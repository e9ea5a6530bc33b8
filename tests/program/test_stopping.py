"""Running until a signal: one stops cleanly, a second one at once; errors come out alone."""

import asyncio
import signal
import subprocess
import sys
import textwrap

import pytest

from bedplate.core import errors
from bedplate.program import stopping

PROGRAM = """
    import asyncio
    from bedplate.program import stopping

    async def main():
        print("ready", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            print("cleaning", flush=True)
            {cleanup}
            print("clean", flush=True)

    stopping.run_until_stopped(main(){options})
"""


def start(cleanup: str, options: str = "") -> subprocess.Popen[str]:
    code = textwrap.dedent(PROGRAM).format(cleanup=cleanup, options=options)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_program_clean_up_and_is_no_failure(number: signal.Signals) -> None:
    with start("await asyncio.sleep(0.01)") as process:
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, "cleaning\nclean\n")


@pytest.mark.parametrize(
    "cleanup", ["await asyncio.sleep(3600)", "await asyncio.to_thread(__import__('time').sleep, 3600)"]
)
def test_a_clean_up_that_hangs_ends_when_its_time_is_over(cleanup: str) -> None:
    with start(cleanup, ", stops_within_s=0.5") as process:
        try:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_clean_up_that_hangs(number: signal.Signals) -> None:
    cleanup = "await asyncio.gather(asyncio.sleep(3600), return_exceptions=True)"
    with start(f"{cleanup}; {cleanup}; {cleanup}") as process:
        assert process.stdout is not None
        try:
            process.send_signal(number)
            assert process.stdout.readline() == "cleaning\n"
            process.send_signal(number)
            assert process.wait(timeout=60) == 128 + number
        finally:
            process.kill()


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_of_one_of_several_tasks_comes_out_alone(count: int) -> None:
    async def fail() -> None:
        raise errors.Invalid("the port is taken")

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(fail())

    with pytest.raises(errors.Invalid, match="port"):
        stopping.run_until_stopped(main())


def test_a_bug_is_not_hidden_behind_an_expected_error() -> None:
    async def main() -> None:
        raise ExceptionGroup("both", [errors.Invalid("expected"), ZeroDivisionError()])

    with pytest.raises(BaseException) as caught:
        stopping.run_until_stopped(main())
    assert isinstance(caught.value, BaseExceptionGroup)
    assert caught.group_contains(ZeroDivisionError)
