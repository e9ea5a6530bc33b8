"""Label selectors: equality, sets, existence, and refusals."""

from __future__ import annotations

import pytest
from tests.conformance.http import Api
from tests.conformance.objects import config_map, core

LABELS = {
    "a": {"app": "web", "tier": "front"},
    "b": {"app": "web", "tier": "back"},
    "c": {"app": "db"},
    "d": {},
    "e": {"app": "", "example.com/zone": "z1"},
}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", "ab"),
        ("app==web,tier=back", "b"),
        ("app!=web", "cde"),
        ("app in (web, db)", "abc"),
        ("app notin (web)", "cde"),
        ("tier", "ab"),
        ("!tier", "cde"),
        ("app=", "e"),
        ("app in (db,),tier notin (x)", "ce"),
        ("app in (db),tier notin (x)", "c"),
        ("example.com/zone=z1", "e"),
        ("app,!tier,app!=db", "e"),
        ("", "abcde"),
    ],
)
async def test_selector_picks(api: Api, ns: str, selector: str, expected: str) -> None:
    for name, labels in LABELS.items():
        await api.create(core(ns, "configmaps"), config_map(name, labels=labels))
    found = await api.names(core(ns, "configmaps"), labelSelector=selector)
    assert "".join(name for name in found if name in LABELS) == expected


@pytest.mark.parametrize("selector", ["app in web", "=x", "app=a b", "a=b=c", "app notin", "bad key=x"])
async def test_a_broken_selector_is_a_bad_request(api: Api, ns: str, selector: str) -> None:
    status = (await api.get(core(ns, "configmaps"), labelSelector=selector)).fails(400, "BadRequest")
    assert "unable to parse" in status["message"] or "found" in status["message"] or "Invalid" in status["message"]
