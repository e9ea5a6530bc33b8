"""docs/proof.md: every promise has a command that ran, and the tests it names exist. And the tool that keeps it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/proof.md"


@pytest.fixture(scope="module")
def proof() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bedplate_proof", ROOT / "tools/proof.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up while it is being made.
    sys.modules["bedplate_proof"] = module
    spec.loader.exec_module(module)
    return module


def test_every_promise_has_one_proof(proof: ModuleType) -> None:
    text = PAGE.read_text()
    found = proof.read(text)
    assert len(found) == text.count("\n### ") == text.count("<!-- proof:")
    assert len({each.name for each in found}) == len(found)
    assert all(each.commands for each in found)


def test_every_proof_has_run(proof: ModuleType) -> None:
    # `test` is the run of all tests, this one among them: it must be able to pass the first time.
    never = [each.name for each in proof.read(PAGE.read_text()) if not each.when.startswith("Ran on 20")]
    never = [name for name in never if name != "test"]
    assert not never, f"run: make proof ARGS='--only {never[0]}'"
    failed = [each.name for each in proof.read(PAGE.read_text()) if "(exit code " in each.output]
    assert not failed


def test_the_tests_it_names_exist() -> None:
    # What commands printed may name tests that are gone; what the page says may not.
    said = re.sub(r"(?m)^(?!\$ ).*$", "", "\n".join(re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    said += re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    named = re.findall(r"\btests/[\w/]+(?:\.py)?", said)
    assert named
    assert not [place for place in named if not (ROOT / place).exists()]


def test_output_is_kept_without_colours_and_places_of_the_machine(proof: ModuleType) -> None:
    output = "\x1b[32mok\x1b[0m /srv/me/bedplate/build /srv/me/x /tmp/abc/def\n" + "line\n" * 40
    kept = proof.tidy(output, {"/srv/me/bedplate": "~/bedplate", "/srv/me": "~"})
    assert kept.splitlines()[0] == "ok ~/bedplate/build ~/x $TMPDIR/…"
    assert "… 25 more lines" in kept


def test_a_proof_is_rewritten_and_the_rest_of_the_page_stays(proof: ModuleType) -> None:
    page = "# T\n\n<!-- proof: a cheap -->\n```console\n$ echo hello\nold\n```\nNot run yet.\n\nrest\n"
    (one,) = proof.read(page)
    assert one.commands == ("echo hello",) and one.output == "old"
    new = proof.Proof("a", "cheap", one.commands, "hello", "Ran on 2026-01-01, 0 s.")
    assert proof.write(page, {"a": new}) == page.replace("old", "hello").replace("Not run yet.", new.when)
