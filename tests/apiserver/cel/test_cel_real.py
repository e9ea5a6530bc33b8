"""The recorded answers of the real API server are still its answers.

Every question of cases/*.yaml is put to a real kube-apiserver. With BEDPLATE_RECORD=1 the answers are written down
first, which is how cases/*.json came about.
"""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.apiserver import recorded
from tests.apiserver.judge import DEFINITIONS, Judge, causes, real_judge, settle

pytestmark = pytest.mark.real


@pytest.fixture
async def judge(tmp_path: pathlib.Path) -> AsyncIterator[Judge]:
    async with real_judge(tmp_path) as found:
        yield found


async def test_cel(judge: Judge) -> None:
    found: dict[str, Any] = {}
    for group in recorded.questions("cel"):
        name, schema = group["name"], group["schema"]
        if rules := group.get("valid"):
            path = await judge.define(recorded.definition(name, recorded.with_rules(schema, rules)))
            found[name] = {
                "causes": await judge.verdict(path, recorded.kind_of(name), "a", group["spec"], group.get("old"))
            }
        if rules := group.get("refused"):
            found[name] = {}
            for rule in rules:
                crd = recorded.definition(name, recorded.with_rules(schema, [rule]))
                found[name][rule] = causes(*await judge.call("POST", f"{DEFINITIONS}?dryRun=All", crd))
    settle("cel", found)


async def test_schema(judge: Judge) -> None:
    found: dict[str, Any] = {}
    for group in recorded.questions("schema"):
        path = await judge.define(recorded.definition(group["name"], group["schema"]))
        found[group["name"]] = [
            await judge.verdict(path, recorded.kind_of(group["name"]), f"a{index}", case["spec"], case.get("old"))
            for index, case in enumerate(group["objects"])
        ]
    settle("schema", found)


async def test_definitions(judge: Judge) -> None:
    found: dict[str, Any] = {}
    for question in recorded.questions("definitions"):
        answer = await judge.call("POST", f"{DEFINITIONS}?dryRun=All", recorded.build(question))
        found[question["name"]] = causes(*answer)
    settle("definitions", found)


async def test_webhook_configurations(judge: Judge) -> None:
    found: dict[str, Any] = {}
    for question in recorded.questions("webhooks"):
        path = f"/apis/admissionregistration.k8s.io/v1/{question['kind'].lower()}s?dryRun=All"
        found[question["name"]] = causes(*await judge.call("POST", path, recorded.webhook_configuration(question)))
    settle("webhooks", found)
