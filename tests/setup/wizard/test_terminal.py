"""The wizard in a real terminal, from the first screen to a saved file that the tool reads without questions."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from tests.apps import tmux
from tests.setup.places import site

from bedplate.head.folder import creation
from bedplate.setup.answers import document
from bedplate.setup.wizard.steps import Steps

pytestmark = pytest.mark.external

PROGRAM = [sys.executable, "-m", "bedplate.apps.kubernetessetup"]


def test_item_48_a_file_of_the_wizard_is_replayed_without_questions(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "kubernetes-default.yaml"
    asyncio.run(creation.make(data, name="basecm10", nodes=3))
    log = ["--log-file", str(tmp_path / "log"), "--data", str(data)]
    environment = {"HOME": str(tmp_path), "TERM": "xterm-256color", "BEDPLATE_DATA": "", "BEDPLATE_URL": ""}
    there = ["sh", "-c", 'cd "$0" && exec "$@"', str(tmp_path)]
    with tmux.terminal([*there, *PROGRAM, *log], environment) as screen:
        screen.wait("What should be done?")
        screen.press("Enter")
        for page in Steps(site(), document.defaults()).screens[:-1]:
            screen.wait(page.about[:40])
            if page.title == "Control-plane nodes":
                screen.wait("at least one control-plane node is needed")
                screen.type("node001")
                screen.wait(lambda screen: "is needed" not in screen.text(), "no problem")
            screen.press("C-n")
        screen.wait("File for the answers")
        screen.press("Tab", "Tab", "Tab", "Enter")
        screen.wait("[left with 0]")
        assert f"The answers are in {file.name}" in screen.text()
    text = file.read_text()
    assert document.save(document.load(text).values) == text
    with tmux.terminal([*PROGRAM, *log, "-c", str(file), "--plan"], environment) as screen:
        screen.wait("Print Summary")
        screen.wait("[left with 0]")
