"""The live display: the printed lines stay, the bar and the running stages go."""

from __future__ import annotations

import io

from rich.console import Console

from bedplate.core.clock import ManualClock
from bedplate.setup.engine.display import LiveDisplay


def test_lines_are_printed_whole_and_the_running_stages_are_shown() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, color_system=None, highlight=False)
    display = LiveDisplay(ManualClock(), console)
    display.show(25, ["kubernetes: Join Worker Nodes", "kubernetes: Install Cluster DNS"])
    display.print("#### stage: kubernetes: " + "a long name " * 10 + "[bold]is not markup[/bold]")
    display.show(50, [f"kubernetes: Stage {number}" for number in range(9)])
    display.hide()
    display.hide()
    text = out.getvalue()
    assert "a long name a long name" in text
    assert "[bold]is not markup[/bold]" in text
    assert "kubernetes: Join Worker Nodes  00:00" in text
    assert " 25 %" in text
    assert "and 4 more" in text
