"""The limit of open files, in processes of their own: it cannot be put back where the hard one was lowered."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, sys
from bedplate.core import openfiles
soft, hard, needed = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(openfiles.raise_limit(needed), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def raised(soft: int, hard: int, needed: int) -> tuple[int, int, int]:
    command = [sys.executable, "-c", CODE, str(soft), str(hard), str(needed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    limit, now_soft, now_hard = map(int, done.stdout.split())
    return limit, now_soft, now_hard


@pytest.mark.parametrize("needed", [0, 100, 512])
def test_the_soft_limit_becomes_the_hard_one(needed: int) -> None:
    assert raised(256, 512, needed) == (512, 512, 512)


def test_what_the_system_does_not_allow_is_told_by_the_limit_that_holds() -> None:
    """Some may raise the hard limit, too; who asks for more than any system has may not."""
    limit, soft, hard = raised(256, 512, 1 << 40)
    assert (limit, soft, hard) == (512, 512, 512)


USED = """
import os, resource, sys
from bedplate.core import openfiles
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
before = openfiles.usage()
handles = [os.open("/dev/null", os.O_RDONLY) for _ in range(10)]
after = openfiles.usage()
try:
    while True:
        handles.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    none_left = openfiles.usage()
os.close(handles.pop())
print(before.limit, after.opened - before.opened, none_left.opened)
"""


def test_what_is_open_is_counted_also_when_nothing_more_can_be_opened() -> None:
    done = subprocess.run([sys.executable, "-c", USED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["64", "10", "64"]
