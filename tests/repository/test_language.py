"""The wording of the repository: no private phrases, no codes of absent documents, no local names that say nothing.

The rules are in `tools/words.py`. What broke a rule when the rule was made is allowed by number in `language.json`, and
the numbers only go down: `python tools/words.py --lower` writes the present ones.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", ROOT / "tools/words.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["words"] = module
    spec.loader.exec_module(module)
    return module


words = load()
RULES = (*words.PHRASES, *words.NAMES, "long-line")
# In one worker: reading the whole repository takes seconds.
pytestmark = pytest.mark.xdist_group("language")


@pytest.fixture(scope="module")
def present() -> dict[str, dict[str, list[object]]]:
    """Every match in the repository, by rule and area."""
    matches: dict[str, dict[str, list[object]]] = words.count()
    return matches


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_of_wording_is_broken_more_often_than_before(
    rule: str, present: dict[str, dict[str, list[object]]]
) -> None:
    allowed = words.allowed().get(rule, {})
    for area, matches in present[rule].items():
        remedy = (
            words.PHRASES[rule][1] if rule in words.PHRASES else f"`python tools/words.py {rule} {area}` lists them"
        )
        listed = "\n".join(map(str, matches[:40]))
        assert len(matches) <= allowed.get(area, 0), f"{rule} in {area}: {remedy}\n{listed}"


def test_only_rules_and_areas_that_exist_have_allowed_numbers() -> None:
    for rule, areas in words.allowed().items():
        assert rule in RULES
        assert set(areas) <= set(words.AREAS)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("is-no", "--port: 'x' is no whole number"),
        ("is-no", "keys that are no text"),
        ("somebody-was", "Somebody was faster"),
        ("is-so", "Poll until something is so."),
        ("see-the-module", '"""See the module."""'),
        ("anew", "lists anew"),
        ("for-ever", "waits for ever"),
        ("mend", "the command that mends it"),
        ("somebody", "somebody else holds the lock"),
        ("whoever", "whoever asks is told"),
        ("everybody", "health: everybody"),
        ("nobody", "Zero: nobody works."),
        ("mutually-exclusive", "-c and -f exclude each other"),
        ("go-together", "--cert and --key go together"),
        ("stands-twice", "a provider stands twice"),
        ("stands-out", "1 something stands out"),
        ("names-no", "the cluster names no server"),
        ("of-nobody", "This is nobody's token"),
        ("makes-it-true", "diff shows it, commit makes it true"),
        ("told-of", "could not be told of changed nodes"),
        ("broke-off", "the answer broke off"),
        ("used-up", "the pool is used up"),
        ("very", "the cloud has said of this very machine"),
        ("such-thing", "there is no such thing"),
        ("woken", "The alerts worth being woken for"),
        ("section", "the rule of §10.3"),
        ("code", "as the specification has it (W9)"),
        ("code", "see S1 and what follows"),
        ("code", "def test_b07_tokens() -> None:"),
        ("code", "see decision 20"),
    ],
)
def test_a_phrase_of_the_table_is_reported(rule: str, text: str) -> None:
    assert [match.line for match in words.phrases(rule, f"fine\n{text}\n")] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "there is no node of that name",
        "the lease is no longer held",
        "must be an integer",
        "extra:rack 'B7'",
        "test_v1_objects and C3PO",
        "base64 W10= and x-S1-y",
    ],
)
def test_ordinary_text_is_not_reported(text: str) -> None:
    assert not [rule for rule in words.PHRASES if words.phrases(rule, text)]


def test_bindings_within_functions_are_reported_and_fields_are_not() -> None:
    text = """
class Answer:
    found: bool

def look(one, *, made=None):
    found = [held for held in one]
    if (said := found):
        return said
    for wanted in one:
        answer.found = wanted
"""
    counts = {name: len(matches) for name, matches in words.bindings(text).items()}
    assert counts == {"found": 1, "one": 1, "made": 1, "held": 1, "wanted": 1, "said": 1}


def test_only_lines_of_prose_are_held_to_the_width() -> None:
    long = "word " * 30
    assert [match.line for match in words.long_lines(f"short\n{long}\n- {long}\n")] == [2, 3]
    assert not words.long_lines(f"```console\n{long}\n```\n| {long} |\n# {long}\n    {long}\n")


def test_allowed_numbers_only_go_down() -> None:
    match = words.Match("a", 1, "x")
    old = {"anew": {"src": 2, "docs": 1}, "mend": {"src": 1}}
    assert words.lowered({"anew": {"src": [match], "docs": [], "tests": [match]}, "mend": {"src": []}}, old) == {
        "anew": {"src": 1}
    }
