"""The pages about the head work as written: their commands, in their order, in one shell."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from tests import pages, programs

pytestmark = pytest.mark.external

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 600
PORT = "8081"


def run_page(page: str, folder: Path) -> str:
    programs.on_path("curl")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BEDPLATE_")}
    environ |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder)}
    return pages.run(ROOT / "docs" / page, folder, environ, [PORT], DEADLINE_S)


def test_the_tutorial_of_the_head(tmp_path: Path) -> None:
    printed = run_page("tutorials/head.md", tmp_path)
    assert "node003: Service shorewall was restarted" in printed
    assert re.search(r"12 to add, 0 to change, 0 to remove on 3 nodes", printed)
    # The file with both rules, and after the undo with one.
    rules = [text for text in printed.split("+ ") if text.startswith("cmsh") and "explain -v /etc/shorewall" in text]
    assert [("443" in text.replace("10443", ""), "10443" in text) for text in rules] == [(True, True), (False, True)]
    assert '"key":"node001"' in printed.replace(" ", "")


def test_the_guide_of_the_head(tmp_path: Path) -> None:
    printed = run_page("guides/head.md", tmp_path)
    assert "rack 3" in printed
    assert re.search(r"error: .*bob.*auditor|error: .*auditor", printed), "bob may not write"
    assert '"user":"alice"' in printed.replace(" ", "")
    assert "revisions 1 to" in printed
