"""The picture on the front page is of a run of `make up`: what a terminal showed while machines stopped and went.

With BEDPLATE_UPDATE_GOLDEN=1 the run writes it; without, what the picture shows is what the run shows.
"""

from __future__ import annotations

import importlib
import io
import os
import re
from html import unescape
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from tests import pages, programs
from tests.apps import tmux
from tests.docs.conftest import ROOT, furnish

PICTURE = ROOT / "docs/pictures/up.svg"
WIDTH = 100


def words_of(svg: str) -> str:
    """The text of a picture, a line for each of its lines."""
    rows = re.findall(r"<text [^>]*clip-path=\"url\(#up-line-(\d+)\)\"[^>]*>(.*?)</text>", svg)
    lines: dict[int, str] = {}
    for row, text in rows:
        lines[int(row)] = lines.get(int(row), "") + unescape(text).replace("\xa0", " ")
    return "\n".join(lines.values())


def kinds(text: str) -> set[str]:
    """The lines that every run has, without their figures."""
    fixed = (
        r"API server ready after|export KUBECONFIG=\S+|simulated nodes|the cloud: a simulated|try: \S+|the head:|"
        r"nodes .* initialised|nvidia-bmm .* calls|rail|storage|head|node ready state|.*Ctrl-C stops all"
    )
    lines = [re.sub(r"[\d.]+|[─█░╭╮╰╯│]", "", pages.comparable(line)) for line in text.splitlines()]
    return {found[0] for line in lines if (found := re.match(fixed, line.strip()))}


@pytest.mark.external
def test_the_picture_of_the_front_page_is_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.built("kubectl")
    furnish(tmp_path)
    line = f"cd {tmp_path} && PATH=/dev/null exec .venv/bin/bedplate up"
    with tmux.terminal(["bash", "-c", line], {"TZ": "UTC"}) as screen:
        screen.wait("more nodes")
        if os.environ.get("BEDPLATE_UPDATE_GOLDEN"):
            screen.wait("machine stopped")
            screen.wait("DeletingNode")
        shown = screen.text(with_colours=True).replace(str(tmp_path), "/home/you/bedplate")
        screen.press("C-c")
        screen.wait("[left with 0]")
    if os.environ.get("BEDPLATE_UPDATE_GOLDEN"):
        monkeypatch.syspath_prepend(str(ROOT / "tools"))
        console = Console(file=io.StringIO(), record=True, width=WIDTH)
        console.print(Text.from_ansi(shown))
        PICTURE.write_text(importlib.import_module("docs").svg_of(console, "make up", "up"))
    plain = Text.from_ansi(shown).plain
    assert len(kinds(plain)) > 8, plain
    assert kinds(words_of(PICTURE.read_text())) == kinds(plain)
