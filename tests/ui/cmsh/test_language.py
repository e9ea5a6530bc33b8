"""Lines to statements: quotes, separators, comments, pipes, the host's commands, parentheses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.ui.cmsh import language
from bedplate.ui.cmsh.language import Usage


def words(line: str) -> list[list[str]]:
    return [statement.words for statement in language.parse(line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("  ;; # nothing", []),
        ("device use node001; show", [["device", "use", "node001"], ["show"]]),
        ("set notes 'a; b | c # d'", [["set", "notes", "a; b | c # d"]]),
        ('set notes "it\'s"', [["set", "notes", "it's"]]),
        ('set notes "say \\"hi\\""', [["set", "notes", 'say "hi"']]),
        ("set notes a\\ b", [["set", "notes", "a b"]]),
        ("set notes C:\\dir", [["set", "notes", "C:\\dir"]]),
        ("set notes a#b # the rest", [["set", "notes", "a#b"]]),
        (".. #but, we're going up:", [[".."]]),
        ("set notes ''", [["set", "notes", ""]]),
        ("set nodes node00[1-3],node005", [["set", "nodes", "node00[1-3],node005"]]),
        ("set oidc a=-", [["set", "oidc", "a=-"]]),
        ("foreach -n a (set notes 'x)'; show)", [["foreach", "-n", "a", "(set notes 'x)'; show)"]]),
        ("set notes (draft; list", [["set", "notes", "(draft"], ["list"]]),
    ],
)
def test_words_and_statements(line: str, expected: list[list[str]]) -> None:
    assert words(line) == expected


def test_what_stands_behind_a_pipe_is_for_the_host_as_it_was_typed() -> None:
    (first, second) = language.parse("list -v | grep -E '(a|b);c' | wc -l; show")
    assert (first.words, first.filter) == (["list", "-v"], "grep -E '(a|b);c' | wc -l")
    assert (second.words, second.filter) == (["show"], "")


def test_a_host_command_keeps_its_quotes_and_pipes_and_ends_at_a_semicolon() -> None:
    (only,) = language.parse("!yum info kubeadm | grep -E '(^Source|^Version)' # of the host; list")
    assert only.host == "yum info kubeadm | grep -E '(^Source|^Version)'"
    parsed = language.parse("!echo hi; list")
    assert (parsed[0].host, parsed[1].words) == ("echo hi", ["list"])


@pytest.mark.parametrize("line", ["set notes 'open", 'set notes "open', "list |", "list | grep 'x", "!echo 'x"])
def test_what_cannot_be_read_is_refused_as_usage(line: str) -> None:
    with pytest.raises(Usage):
        language.parse(line)


@pytest.mark.parametrize(
    ("line", "before", "partial", "start"),
    [
        ("", [], "", 0),
        ("dev", [], "dev", 0),
        ("device use no", ["device", "use"], "no", 11),
        ("device use ", ["device", "use"], "", 11),
        ("list; sho", [], "sho", 6),
        ("set notes 'a b", ["set", "notes"], "a b", 10),
        ("foreach * (list", ["foreach", "*"], "(list", 10),
        ("foreach * (list)", ["foreach", "*"], "(list)", 10),
        ("(list); ", [], "", 8),
        ("(list) ", ["(list)"], "", 7),
    ],
)
def test_the_word_being_typed(line: str, before: list[str], partial: str, start: int) -> None:
    statement, word = language.tail(line)
    assert (statement.words, word, statement.last_start) == (before, partial, start)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=12), min_size=1, max_size=5))
def test_quoted_words_are_read_back(said: list[str]) -> None:
    line = "set " + " ".join(language.quote(word) for word in said)
    assert words(line) == [["set", *said]]


@given(st.text(max_size=40))
def test_any_line_is_read_or_refused_and_can_always_be_completed(line: str) -> None:
    language.tail(line)
    try:
        language.parse(line)
    except Usage as wrong:
        assert wrong.message
