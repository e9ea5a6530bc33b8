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
