"""The package's front door: what it promises is there, and nothing is loaded before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bedplate.head


def test_every_promised_name_is_there() -> None:
    for name in bedplate.head.__all__:
        assert getattr(bedplate.head, name) is not None
    assert sorted(bedplate.head.__all__) == sorted(bedplate.head._MODULES)
    with pytest.raises(AttributeError, match="nothing"):
        _ = bedplate.head.nothing


def test_a_shell_over_a_daemon_loads_neither_the_store_nor_the_vault() -> None:
    code = (
        "import sys, bedplate.ui.cmsh.shell, bedplate.ui.remote;"
        "print([name for name in sys.modules if name.startswith(('bedplate.store', 'bedplate.head.vault', 'aiohttp'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
