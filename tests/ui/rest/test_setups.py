"""Setups over HTTP: the form, answers that are checked, runs that are started, followed and ended."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.setup.places import MINIMAL
from tests.setup.serving.faking import SECRET, Fake
from tests.ui.rest.serving import Served
from tests.waiting import until
from yarl import URL

from bedplate.setup.answers import declaration
from bedplate.setup.serving import KubernetesSetups, runs

YAML = {"Content-Type": "application/yaml"}


@pytest.fixture
async def fake(server: Served, tmp_path: pathlib.Path) -> AsyncIterator[Fake]:
    made = await Fake(tmp_path).make()
    object.__setattr__(server.service, "setups", await made.setups())
    yield made
    made.end()


async def ask(http: aiohttp.ClientSession, method: str, way: str, **about: Any) -> tuple[int, Any]:
    async with http.request(method, f"/api/v1/{way}", **about) as response:
        return response.status, await response.json()


async def follow(http: aiohttp.ClientSession, status: str, cluster: str = "default") -> Any:
    last: dict[str, Any] = {}

    async def is_there() -> bool:
        code, answer = await ask(http, "GET", f"setups/{cluster}")
        last.clear()
        last.update(answer)
        return code == 200 and answer["status"] == status

    await until(is_there, f"the run is {status}")
    return last


async def test_the_form_has_every_question(http: aiohttp.ClientSession, fake: Fake) -> None:
    code, form = await ask(http, "GET", "setup-form")
    paths = [question["path"] for screen in form["screens"] for question in screen["questions"]]
    assert code == 200 and sorted(paths) == sorted(declaration.by_path())


async def test_answers_are_checked_with_the_messages_of_the_tool(http: aiohttp.ClientSession, fake: Fake) -> None:
    code, form = await ask(http, "POST", "setup-form", data=MINIMAL, headers=YAML)
    assert (code, form["problems"], form["cluster"]) == (200, [], "default")
    code, form = await ask(http, "POST", "setup-form", data=MINIMAL.replace("node001", "node009"), headers=YAML)
    assert form["problems"] == [{"path": "kubernetes.nodes.masters.nodes", "text": "node 'node009' not found"}]
    code, problem = await ask(http, "POST", "setup-form", data="kubernetes: {nam: x}", headers=YAML)
    assert code == 409 and "kubernetes.nam (line 1): unknown key; did you mean name?" in problem["problems"]
    for nonsense in ("[", "", "- 1", "\0", "{{"):
        code, problem = await ask(http, "POST", "setup-form", data=nonsense, headers=YAML)
        assert code == 400 and problem["hint"] is not None, nonsense
    assert runs.clusters(fake.state) == []


async def test_a_run_is_started_followed_and_kept_from_a_second_one(http: aiohttp.ClientSession, fake: Fake) -> None:
    fake.will("hold")
    code, run = await ask(http, "POST", "setups", data=MINIMAL, headers=YAML)
    assert (code, run["by"], run["cluster"]) == (202, "admin", "default")
    await follow(http, "running")
    code, problem = await ask(http, "POST", "setups", data=MINIMAL, headers=YAML)
    assert code == 409 and "started by admin" in problem["detail"]
    code, problem = await ask(http, "POST", "setups/default", json={"action": "resume"})
    assert code == 409
    fake.will("fail")
    fake.will_not("hold")
    run = await follow(http, "failed")
    assert run["actions"] == ["resume", "undo"] and SECRET not in repr(run) and "********" in run["trouble"]
    fake.will_not("fail")
    code, run = await ask(http, "POST", "setups/default", json={"action": "undo"})
    assert code == 202
    await follow(http, "undone")
    code, listed = await ask(http, "GET", "setups")
    assert [(each["cluster"], each["status"]) for each in listed["items"]] == [("default", "undone")]


async def test_answers_that_do_not_fit_start_nothing(http: aiohttp.ClientSession, fake: Fake) -> None:
    code, problem = await ask(http, "POST", "setups", data=MINIMAL.replace("node001", "node009"), headers=YAML)
    assert code == 409 and "node 'node009' not found" in problem["problems"][0]
    assert runs.clusters(fake.state) == []


async def test_removal_needs_the_name_of_a_cluster_that_exists(http: aiohttp.ClientSession, fake: Fake) -> None:
    for confirm in ("", "yes", "Default"):
        code, _ = await ask(http, "POST", "setups/default", json={"action": "remove", "confirm": confirm})
        assert code == 409
    code, _ = await ask(http, "POST", "setups/nowhere", json={"action": "remove", "confirm": "nowhere"})
    assert code == 404
    code, _ = await ask(http, "POST", "setups/default", json={"action": "destroy"})
    assert code == 400
    assert runs.clusters(fake.state) == []


@pytest.mark.parametrize(("user", "may_read"), [("olga", True), ("arno", True), ("node001", False)])
async def test_only_administrators_start_runs(server: Served, fake: Fake, user: str, may_read: bool) -> None:
    headers = {"Authorization": f"Bearer {server.tokens[user]}"}
    async with aiohttp.ClientSession(server.url, headers=headers) as http:
        assert (await ask(http, "POST", "setups", data=MINIMAL, headers=YAML))[0] == 403
        assert (await ask(http, "POST", "setups/default", json={"action": "undo"}))[0] == 403
        assert (await ask(http, "GET", "setups"))[0] == (200 if may_read else 403)
        assert (await ask(http, "GET", "setups/nowhere"))[0] == (404 if may_read else 403)


async def test_a_head_without_the_tool_says_so(server: Served, http: aiohttp.ClientSession) -> None:
    object.__setattr__(server.service, "setups", None)
    for method, way in (("GET", "setups"), ("GET", "setup-form"), ("GET", "setups/default")):
        code, problem = await ask(http, method, way)
        assert code == 503 and "bedplate head serve" in problem["hint"]


async def test_answers_have_the_limit_of_a_form(http: aiohttp.ClientSession, fake: Fake) -> None:
    large = MINIMAL + "#" * (1 << 20)
    for way in ("setup-form", "setups"):
        assert (await ask(http, "POST", way, data=large, headers=YAML))[0] == 413
    assert runs.clusters(fake.state) == []


async def test_others_are_answered_while_answers_are_read(
    http: aiohttp.ClientSession, server: Served, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    setups, answered = server.service.setups, threading.Event()
    assert isinstance(setups, KubernetesSetups)
    read = setups.check
    monkeypatch.setattr(setups, "check", lambda answers: answered.wait(10) and read(answers))
    checking = asyncio.create_task(ask(http, "POST", "setup-form", data=MINIMAL, headers=YAML))
    await asyncio.sleep(0.1)
    assert (await ask(http, "GET", "whoami"))[0] == 200 and not checking.done()
    answered.set()
    assert (await checking)[0] == 200


async def test_names_of_runs_cannot_leave_the_folder_and_what_is_strange_in_it_hides_nothing(
    http: aiohttp.ClientSession, fake: Fake
) -> None:
    await ask(http, "POST", "setups", data=MINIMAL, headers=YAML)
    await follow(http, "completed")
    for strange in (".hidden", "-rf", "a b", "x\u202ey", "line\nbreak"):
        (fake.state / strange).mkdir()
        (fake.state / strange / "journal.json").write_text("{}")
    (fake.state / "elsewhere").symlink_to(fake.data)
    (fake.data / "journal.json").write_text("{}")
    code, listed = await ask(http, "GET", "setups")
    assert (code, [each["cluster"] for each in listed["items"]]) == (200, ["default"])
    for name in ("..", "%2e%2e", "..%2fdefault", "%2e%2e%2fworld", "elsewhere", ".hidden", "default%00", "lock"):
        for method, about in (("GET", {}), ("POST", {"json": {"action": "undo"}})):
            async with http.request(method, URL(f"/api/v1/setups/{name}", encoded=True), **about) as response:
                assert response.status in (400, 404, 405), (method, name, await response.text())
