"""The setup tool on a head in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.setup.tool.driving import Tool

from bedplate.setup.tool import operations


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """With stages that need no nodes in place of those of Kubernetes."""
    made = Tool(tmp_path)
    monkeypatch.setattr(operations, "deployment", made.stages)
    monkeypatch.setattr(operations, "removal", lambda cluster: made.stages())
    return made
