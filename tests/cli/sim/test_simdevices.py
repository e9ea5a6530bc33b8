"""`bedplate sim devices`: which head, and what it says when there is none. That it works is shown by the tutorial."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from bedplate.cli.sim.simdevices import devices
from bedplate.core import errors
from bedplate.head.folder import creation


def test_without_a_head_it_says_how_to_name_one() -> None:
    done = CliRunner().invoke(devices, [])
    assert done.exit_code == 2
    assert "--data DIR or --url URL" in done.output


def test_a_folder_that_nobody_serves_is_named_with_the_remedy(tmp_path: Path) -> None:
    asyncio.run(creation.make(tmp_path / "site", name="head", nodes=1))
    with pytest.raises(errors.Unavailable, match="no head serves") as caught:
        CliRunner().invoke(devices, ["--data", str(tmp_path / "site")], catch_exceptions=False)
    assert "bedplate head serve --data" in caught.value.hint


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no.token"
    with pytest.raises(errors.Invalid, match=str(missing)):
        CliRunner().invoke(devices, ["--url", "https://h", "--token-file", str(missing)], catch_exceptions=False)
