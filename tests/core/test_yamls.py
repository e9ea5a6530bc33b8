"""YAML as Kubernetes reads it."""

import pytest
import yaml

from bedplate.core import yamls


def test_dates_and_the_equals_sign_stay_text() -> None:
    assert yamls.load("a: 2026-01-02\nb: [=, '!=']\nc: 2026-01-02T03:04:05Z") == {
        "a": "2026-01-02",
        "b": ["=", "!="],
        "c": "2026-01-02T03:04:05Z",
    }


def test_of_a_repeated_key_the_later_wins_or_strictly_it_is_refused() -> None:
    assert yamls.load("a: 1\na: 2") == {"a": 2}
    with pytest.raises(yaml.YAMLError, match="'a' is given twice"):
        yamls.load("x: {a: 1, a: 2}", strict=True)


def test_nothing_can_be_constructed_from_a_tag() -> None:
    with pytest.raises(yaml.YAMLError):
        yamls.load("!!python/object/apply:os.system ['true']")


def test_merge_keys_are_not_mistaken_for_repetition() -> None:
    assert yamls.load("base: &b {a: 1}\nmore: {<<: *b, a: 2}", strict=True)["more"] == {"a": 2}


NESTED = 100_000
BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)
MERGES = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, 12)
)
CHAIN = "a0: &a0 [1]\n" + "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 300))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * NESTED + "]" * NESTED, "max depth"),
        ("{a: " * NESTED, "max depth"),
        ("- " * NESTED, "max depth"),
        ("? " * NESTED, "max depth"),
        (BOMB, "excessive aliasing"),
        (MERGES, "excessive aliasing"),
        (CHAIN, "max depth"),
        ("a: &a [*a]", "contains itself"),
        ("a: &a {b: *a}", "contains itself"),
    ],
    ids=["brackets", "braces", "dashes", "questions", "aliases", "merges", "a chain", "a list in itself", "a mapping"],
)
@pytest.mark.parametrize("strict", [False, True])
def test_what_would_cost_the_program_its_life_is_refused(text: str, words: str, strict: bool) -> None:
    with pytest.raises(yaml.YAMLError, match=words):
        yamls.load(text, strict=strict)


def test_aliases_and_nesting_within_reason_are_read() -> None:
    assert yamls.load("a: &a [1]\nb: [*a, *a]") == {"a": [1], "b": [[1], [1]]}
    assert yamls.load("[" * 200 + "]" * 200) is not None
    assert yamls.load("") is None
