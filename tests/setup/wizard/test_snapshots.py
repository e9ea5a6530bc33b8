"""Every screen of the wizard as somebody sees it, letter by letter. `BEDPLATE_UPDATE_GOLDEN=1` writes the files: read
them, for they show what is cut off or lies over something else."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import pytest
from tests.setup.places import site
from tests.setup.wizard.test_app import begun, chosen, question, shown
from tests.waiting import until

from bedplate.setup.answers import declaration, document
from bedplate.setup.wizard.app import Wizard

GOLDEN = Path(__file__).parent / "golden"
SIZE = (100, 40)
_TEXT = re.compile(r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>')


def seen(app: Wizard) -> str:
    """What is on the screen, line by line, of the picture that Textual exports."""
    rows: dict[float, list[tuple[float, str]]] = {}
    picture = app.export_screenshot(simplify=True)
    for x, y, text in _TEXT.findall(picture[picture.index("-matrix") :]):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    width = 12.2  # of a letter, in the units of the picture
    lines = []
    for _, parts in sorted(rows.items()):
        line = ""
        for x, text in sorted(parts):
            line = line.ljust(round(x / width)) + text
        lines.append(line.rstrip())
    return "\n".join(lines).rstrip() + "\n"


async def settled(app: Wizard) -> str:
    """What is on the screen once two pictures in a row are the same, down to the keys in the last line."""
    last = [""]

    def is_still() -> bool:
        now = seen(app)
        is_same = now == last[0] and "^q Leave" in now
        last[0] = now
        return is_same

    await until(is_still, "the screen is drawn")
    return last[0]


def compare(name: str, text: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("BEDPLATE_UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert file.read_text() == text


def wizard() -> Wizard:
    made = Wizard(site(), document.defaults())
    made.steps.type(question("nodes-masters-nodes"), "node001")
    made.steps.type(question("nodes-workers-nodes"), "node00[2-3]")
    return made


async def test_the_first_screen() -> None:
    app = Wizard(site(clusters={"default": 10443}), document.defaults(), is_interrupted=True)
    async with app.run_test(size=SIZE):
        await begun(app)
        compare("00-operations", await settled(app))


async def test_an_operation_that_asks() -> None:
    app = Wizard(site(clusters={"first": 10443, "second": 10444}), document.defaults())
    async with app.run_test(size=SIZE):
        await chosen(app, "upgrade")
        await shown(app, "Upgrade", "Button")
        compare("00-upgrade", await settled(app))


CONDITIONS = {
    "Ingress on 443": {"addons-ingress_controller": "yes"},
    "Kyverno": {"kyverno-install": "yes", "kyverno-policies": "yes"},
    "NetQ": {"operators": "netq"},
    "Operators": {"operators": "metallb"},
    "Registry mirror": {"registry_mirror-url": "https://mirror", "registry_mirror-password": "hunter2"},
}
"""What makes questions of a screen apply."""


@pytest.mark.parametrize("page", declaration.SCREENS, ids=lambda page: page.title)
async def test_every_other_screen(page: declaration.Screen) -> None:
    app = wizard()
    for name, answer in CONDITIONS.get(page.title, {}).items():
        app.steps.type(question(name), answer)
    async with app.run_test(size=SIZE):
        await begun(app)
        app.go_to(app.steps.screens.index(page))
        await shown(app, page.title, "Button")
        text = await settled(app)
    assert page.title in text
    slug = re.sub("[^a-z0-9]+", "-", page.title.lower()).strip("-")
    compare(f"{page.number:02}-{slug}", text)


def test_every_golden_file_belongs_to_a_screen() -> None:
    assert len(list(GOLDEN.glob("*.txt"))) == len(declaration.SCREENS) + 2
