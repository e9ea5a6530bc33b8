"""The reference of the head is whole: every parameter, command and address; links inside it lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bedplate.head.entities import SCHEMA
from bedplate.ui.cmsh.commands import COMMANDS
from bedplate.ui.rest.document import document

REFERENCE = Path(__file__).resolve().parents[2] / "docs/reference"


def test_every_parameter_of_every_entity_is_told() -> None:
    text = (REFERENCE / "head-entities.md").read_text()
    for name, entity in SCHEMA.types.items():
        section = text.split(f"\n### {name}\n")[1].split("\n### ")[0].split("\n## ")[0]
        labels = [line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")][1:]
        assert labels == [row.label for row in entity.rows], name


def test_every_command_of_the_shell_is_told() -> None:
    text = (REFERENCE / "cmsh.md").read_text()
    assert re.findall(r"(?m)^### `(.+)`$", text) == sorted(COMMANDS)


def test_every_address_is_told_once() -> None:
    text = (REFERENCE / "head-rest.md").read_text()
    told = re.findall(r"(?m)^## `[A-Z]+ (.+)`$", text)
    modes = "|".join(SCHEMA.modes)
    served = {re.sub(rf"/objects/({modes})\b", "/objects/{mode}", path) for path in document(SCHEMA)["paths"]}
    assert set(told) == served


@pytest.mark.parametrize("page", ["head-entities.md", "cmsh.md"])
def test_links_inside_the_page_lead_somewhere(page: str) -> None:
    text = (REFERENCE / page).read_text()
    titles = {re.sub(r"[^\w -]", "", title).lower() for title in re.findall(r"(?m)^#+ (.+)$", text)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= titles
