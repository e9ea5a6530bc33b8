"""generateName: a suffix is added, a given name wins, names are cut and kept unique."""

from __future__ import annotations

import asyncio
import re

from tests.conformance.http import Api, Json
from tests.conformance.objects import core


def unnamed(prefix: str, **metadata: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": prefix, **metadata}}


async def test_five_characters_are_added(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), unnamed("run-"))
    assert re.fullmatch(r"run-[bcdfghjklmnpqrstvwxz2456789]{5}", made["metadata"]["name"])
    assert made["metadata"]["generateName"] == "run-"


async def test_a_given_name_wins(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), unnamed("run-", name="mine"))
    assert made["metadata"]["name"] == "mine"
    assert made["metadata"]["generateName"] == "run-"


async def test_many_are_all_different(api: Api, ns: str) -> None:
    made = await asyncio.gather(*(api.create(core(ns, "configmaps"), unnamed("n-")) for _ in range(20)))
    assert len({each["metadata"]["name"] for each in made}) == 20


async def test_a_long_prefix_is_cut(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), unnamed("x" * 80))
    assert len(made["metadata"]["name"]) == 63
    assert made["metadata"]["name"].startswith("x" * 58)


async def test_a_bad_prefix_is_invalid(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "configmaps"), unnamed("Bad_"))).fails(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"metadata.generateName", "metadata.name"}


async def test_dry_run_shows_a_name_too(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), unnamed("dry-"), dryRun="All")
    assert made["metadata"]["name"].startswith("dry-")
    (await api.get(core(ns, "configmaps", made["metadata"]["name"]))).fails(404, "NotFound")
