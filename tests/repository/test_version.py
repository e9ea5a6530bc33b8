"""One version: what the package says is what charts, image tags and the release say."""

from __future__ import annotations

from pathlib import Path

import yaml

import bedplate

ROOT = Path(__file__).parents[2]


def test_package_version_file_and_charts_agree() -> None:
    assert (ROOT / "VERSION").read_text().strip() == f"v{bedplate.__version__}"
    charts = sorted((ROOT / "charts").glob("*/Chart.yaml"))
    assert charts
    for chart in charts:
        found = yaml.safe_load(chart.read_text())
        assert (found["version"], str(found["appVersion"])) == (bedplate.__version__, bedplate.__version__), chart
