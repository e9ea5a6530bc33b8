"""The reduced facts are what the documents say, and hold no text of theirs."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.contract import documents

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cloudfacts", ROOT / "tools" / "cloudfacts.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.external
@pytest.mark.parametrize("name", sorted(documents.FILES))
def test_facts_are_in_step_with_the_document(name: str, tool: ModuleType) -> None:
    facts = tool.reduce_document(documents.document(name), set(tool.OPERATIONS[name].split()))
    committed = json.loads((documents.HERE / "facts" / f"{name}.json").read_text())
    assert committed == json.loads(json.dumps(facts)), "run tools/cloudfacts.py"


@pytest.mark.parametrize("name", sorted(documents.FILES))
def test_facts_hold_every_operation_and_no_descriptions(name: str, tool: ModuleType) -> None:
    path = documents.HERE / "facts" / f"{name}.json"
    assert set(documents.load(name).operations) == set(tool.OPERATIONS[name].split())
    assert path.stat().st_size < 40_000
    assert [text for text in _texts(json.loads(path.read_text())) if " " in text] == []


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict | list):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from _texts(each)


def test_the_folder_of_the_documents_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BEDPLATE_OPENAPI", str(tmp_path))
    assert documents.folder() == tmp_path
    monkeypatch.setenv("BEDPLATE_OPENAPI", str(tmp_path / "missing"))
    with pytest.raises(NotADirectoryError, match="missing is not a folder"):
        documents.folder()


def test_a_document_that_is_missing_in_its_folder_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BEDPLATE_OPENAPI", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="oxide-nexus"):
        documents.document("oxide")
