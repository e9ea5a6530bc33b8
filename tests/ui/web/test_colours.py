"""Text can be read on its ground, in light and in dark: WCAG 2 asks for a contrast of 4.5."""

from __future__ import annotations

import re

import pytest

from bedplate.ui.web import engine

PAIRS = [
    *((ink, ground) for ink in ("ink", "soft", "link") for ground in ("ground", "paper", "faint")),
    *((ink, f"{ink}-soft") for ink in ("good", "bad", "down", "unknown", "warn")),
    *((ink, ground) for ink in ("good", "bad", "warn") for ground in ("paper", "faint")),
    ("link", "accent-soft"),
    ("on-accent", "accent"),
    *(("ink", f"{ground}-soft") for ground in ("good", "bad", "down", "warn", "accent")),
]


def palettes() -> dict[str, dict[str, str]]:
    found = engine.static("page.css")
    assert found is not None
    light, dark = re.findall(r":root \{(.*?)\}", found.body.decode(), re.S)[:2]
    named = {"light": dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", light))}
    return named | {"dark": named["light"] | dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", dark))}


def brightness(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("palette", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_text_can_be_read(palette: str, ink: str, ground: str) -> None:
    named = palettes()[palette]
    one, other = sorted((brightness(named[ink]), brightness(named[ground])), reverse=True)
    assert (one + 0.05) / (other + 0.05) >= 4.5
