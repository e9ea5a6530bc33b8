"""Which processes are taken for the tool: what the kernel says of them, in a folder that stands for /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedplate.setup.serving import runs


@pytest.mark.parametrize(
    ("words", "has_program", "is_tool"),
    [
        (b"python\0-m\0bedplate.apps.kubernetessetup\0--json\0", True, True),
        (b"/usr/bin/cm-kubernetes-setup\0--json\0", True, True),
        (b"sleep\060\0", True, False),
        (b"", True, True),
        (b"", False, False),
    ],
    ids=["module", "program", "another", "just started", "dead"],
)
def test_a_process_is_the_tool_by_its_words_or_while_it_has_none_yet(
    tmp_path: Path, words: bytes, has_program: bool, is_tool: bool
) -> None:
    folder = tmp_path / "17"
    folder.mkdir()
    (folder / "cmdline").write_bytes(words)
    if has_program:
        (folder / "exe").symlink_to("/usr/bin/python3")
    assert runs.is_tool(17, tmp_path) is is_tool


def test_a_process_that_is_gone_is_not_the_tool(tmp_path: Path) -> None:
    assert not runs.is_tool(17, tmp_path)
