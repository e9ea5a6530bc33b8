"""What the pages show, without JavaScript."""

from __future__ import annotations

from tests.ui.web.conftest import Place


async def test_overview(place: Place) -> None:
    reader = await place.reader()
    page = await reader.get("/")
    assert page.status == 200
    assert page.rows("Cluster")[0]["Control plane"] == "3"
