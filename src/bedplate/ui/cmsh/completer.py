"""What TAB does in a terminal: completes as far as there is one way, and shows the ways when there are several.

In: a line and what fits at its end (`Shell.complete`). Out: what to put in, or the words in columns as a shell shows
them. Nothing here reads a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bedplate.ui.cmsh.shell import Completion

__all__ = ["Step", "columns", "step"]

_GAP = 2
_GOES_ON = ("/", "=", ",", " ", "[")


class Step(NamedTuple):
    """What one TAB does: `text` replaces the last `length` letters; `choices` are what could follow instead."""

    text: str = ""
    length: int = 0
    choices: tuple[str, ...] = ()


def step(line: str, fitting: Sequence[Completion]) -> Step:
    """What a TAB at the end of the line does: one word is put in whole, several as far as they agree."""
    if not fitting:
        return Step()
    if len({(completion.text, completion.length) for completion in fitting}) == 1:
        text = fitting[0].text
        return Step(text if text.endswith(_GOES_ON) else text + " ", fitting[0].length)
    length = max(completion.length for completion in fitting)
    typed = line[len(line) - length :]
    choices = tuple(sorted({completion.text for completion in fitting}))
    # Words may replace parts of different lengths (quotes, ranges); then there is nothing they agree on.
    agreed = _agreed(choices) if all(completion.length == length for completion in fitting) else ""
    if len(agreed) > len(typed):
        return Step(agreed, length)
    return Step(choices=choices)


def _agreed(choices: Sequence[str]) -> str:
    """How all of them begin. They are sorted, so the first and the last differ the most."""
    first, last = choices[0], choices[-1]
    differ = (at for at, (letter, other) in enumerate(zip(first, last, strict=False)) if letter != other)
    return first[: next(differ, min(len(first), len(last)))]


def columns(words: Sequence[str], width: int, most_rows: int = 0) -> str:
    """The words in columns of one width, read downwards; `most_rows` > 0 leaves out the rest and says how many."""
    if not words:
        return ""
    cell = max(map(len, words)) + _GAP
    across = max(1, (width + _GAP) // cell)
    rows = -(-len(words) // across)
    left_out = 0
    if most_rows and rows > most_rows:
        left_out = len(words) - most_rows * across
        words, rows = words[: most_rows * across], most_rows
    lines = ["".join(word.ljust(cell) for word in words[row::rows]).rstrip() for row in range(rows)]
    if left_out:
        lines.append(f"... and {left_out} more; type more letters to see fewer")
    return "\n".join(lines)
