"""Files that hold secrets: whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bedplate.core import errors
from bedplate.serving import files


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.ENOSPC, "free some disk space"), (errno.EDQUOT, "free some disk space"), (errno.EROFS, "choose a path")],
)
@pytest.mark.parametrize("is_new", [False, True])
def test_a_disk_that_takes_no_more_is_told_with_the_remedy_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str, is_new: bool
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    (tmp_path / "old").write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.Invalid, match=os.strerror(number)) as refused:
        if is_new:
            with files.new_private(tmp_path / "new") as file:
                file.write(b"after")
        else:
            files.write_private(tmp_path / "old", b"after")
    assert hint in refused.value.hint
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("old", b"before")]
