"""The pages of setups: the form of a deployment, its summary and its file, runs with their stages, removal."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from tests.head.committing import commit
from tests.setup.serving.faking import SECRET, Fake
from tests.ui.web.conftest import Place
from tests.ui.web.reading import Page, Reader
from tests.waiting import until

from bedplate.api.setups import SetupRun
from bedplate.head.objects import Obj
from bedplate.head.session import Edit
from bedplate.setup.answers import declaration, document
from bedplate.setup.serving import runs

FORM = "/setup/deploy"
MASTERS = "a.kubernetes.nodes.masters.nodes"
EVIL = "<script>alert(1)</script>"


@pytest.fixture
async def fake(place: Place, tmp_path: pathlib.Path) -> AsyncIterator[Fake]:
    """The tool of another head, which has free nodes."""
    made = await Fake(tmp_path).make()
    object.__setattr__(place.service, "setups", await made.setups())
    yield made
    made.end()


def run_of(place: Place, cluster: str = "first") -> SetupRun:
    assert place.service.setups is not None
    return place.service.setups.run(cluster)


async def ends(place: Place, status: str, cluster: str = "first") -> None:
    await until(lambda: run_of(place, cluster).status == status, f"the run for {cluster} is {status}")


async def summary(reader: Reader, **changed: str) -> Page:
    await reader.get(FORM)
    answers = {"a__kubernetes__name": "first", MASTERS.replace(".", "__"): "node001", **changed}
    return await reader.submit(FORM, **answers)


async def deploy(reader: Reader, **changed: str) -> Page:
    page = await summary(reader, **changed)
    assert page.status == 200, page.text
    return await reader.submit(FORM, then="deploy")


async def test_the_form_has_every_question_with_its_label_and_help_in_order(place: Place, fake: Fake) -> None:
    page = await (await place.reader()).get(FORM)
    form = page.form(FORM)
    asked = [name.removeprefix("a.") for name in [*form.fields, *form.boxes] if name.startswith("a.")]
    assert set(asked) == set(declaration.by_path()) and not form.unlabelled
    places = [page.html.index(f">{screen.title}</h2>") for screen in declaration.SCREENS[:-1]]
    assert places == sorted(places)
    for field in declaration.FIELDS:
        assert field.help.split("`")[0][:40] in page.text, field.path


async def test_wrong_answers_are_told_beside_their_fields_and_stay_typed(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    page = await summary(reader, a__kubernetes__networks__pod="10.141.0.0/16", a__kubernetes__name=EVIL)
    assert page.status == 400 and "nothing was changed" in page.text
    assert "must be a name of lower-case letters, digits and dashes" in page.text
    assert page.form(FORM).fields["a.kubernetes.name"] == EVIL and EVIL not in page.html
    page = await summary(reader, a__kubernetes__networks__pod="10.141.0.0/16")
    assert "10.141.0.0/16 overlaps the network" in page.text


async def test_the_summary_shows_the_answers_and_gives_the_file(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    page = await summary(reader)
    assert page.status == 200 and "Nothing was changed yet" in page.text and "node001" in page.text
    page = await reader.submit(FORM, then="save")
    assert page.headers["Content-Disposition"] == 'attachment; filename="kubernetes-first.yaml"'
    loaded = document.load(page.html).values["kubernetes"]
    assert (loaded["name"], loaded["nodes"]["masters"]["nodes"]) == ("first", ["node001"])
    await summary(reader)
    page = await reader.submit(FORM, then="edit")
    assert page.form(FORM).fields["a.kubernetes.name"] == "first" and MASTERS in page.form(FORM).fields


async def test_a_password_is_stars_in_the_summary_and_whole_in_the_file(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    # The file folds a long one with blanks.
    password = "hunter2 long" + " hunter2: pass phrase" * 10
    mirror = {"url": "https://mirror", "username": "robot", "password": password}
    page = await summary(reader, **{f"a__kubernetes__registry_mirror__{key}": text for key, text in mirror.items()})
    assert page.status == 200 and "password: '********'" in page.text
    assert "hunter2" not in page.text and "pass phrase" not in page.text
    page = await reader.submit(FORM, then="save")
    assert document.load(page.html).values["kubernetes"]["registry_mirror"] == {**mirror, "fallback": True}
    page = await summary(reader, **{f"a__kubernetes__registry_mirror__{key}": text for key, text in mirror.items()})
    page = await reader.submit(FORM, then="edit")
    assert 'type="password"' in page.html
    assert page.form(FORM).fields["a.kubernetes.registry_mirror.password"] == password


async def test_a_run_is_shown_with_stages_lines_and_who_started_it(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    fake.will("hold")
    page = await deploy(reader)
    assert page.status == 200 and "The deployment of the cluster first has begun" in page.text
    await until(lambda: len(run_of(place).stages) > 1 and bool(run_of(place).stages[1].lines), "the stage speaks")
    page = await (await place.reader("auditor")).get("/setup/runs/first")
    assert "running" in page.text and "started by admin" in page.text and "********@mirror" in page.text
    assert [row["State"] for row in page.rows("Took")] == ["done", "running", "done", "pending"]
    assert SECRET not in page.html and EVIL not in page.html and EVIL in page.text
    assert not [form for form in page.forms if form.action.startswith("/setup")], "an auditor only looks"
    fake.will_not("hold")
    await ends(place, "completed")
    page = await reader.get("/setup/runs/first")
    assert [row["State"] for row in page.rows("Took")] == ["done"] * 4 and "4 of 4 stages" in page.text
    page = await reader.get("/setup")
    (row,) = [row for row in page.rows("Run") if row["Cluster"] == "first"]
    assert (row["Run"], row["Status"], row["By"]) == ("deploy", "completed", "admin")
    assert any("admin deploys the cluster first" in notice.text for notice in place.service.notices.latest(5))
    assert fake.leaks() == []


async def test_a_second_submit_and_the_back_button_start_nothing(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    fake.will("hold")
    await summary(reader)
    sent = reader.page.form(FORM).fields | {"then": "deploy"}
    answers = await asyncio.gather(*(reader.post(FORM, sent) for _ in range(3)))
    pages = " ".join(page.text for page in answers)
    assert "The deployment of" in pages and "another setup is running: deploy of the cluster first" in pages
    process = run_of(place).process
    page = await reader.post(FORM, sent)
    assert "started by admin" in page.text and "another setup is running" in page.text
    assert run_of(place).process == process
    fake.will_not("hold")
    await ends(place, "completed")


async def test_another_administrator_is_told_who_deploys(place: Place, fake: Fake) -> None:
    user = Obj("User", "bob", {"role": "admin"})
    await commit(place.head, [Edit("user", "bob", None, user)], "setup", "bob")
    place.signed["bob"] = (await place.tokens.create("user", "bob", "bob"))[1]
    ann, bob = await place.reader(), await place.reader("bob")
    fake.will("hold")
    await summary(ann)
    await summary(bob, a__kubernetes__name="second")
    pages = await asyncio.gather(ann.submit(FORM, then="deploy"), bob.submit(FORM, then="deploy"))
    (told,) = [page for page in pages if "another setup is running" in page.text]
    (winner,) = [page for page in pages if "The deployment of" in page.text]
    name, cluster = ("admin", "first") if winner is pages[0] else ("bob", "second")
    assert f"deploy of the cluster {cluster}, started by {name}" in told.text
    fake.will_not("hold")
    await ends(place, "completed", cluster)
    assert runs.clusters(fake.state) == [cluster]


async def test_a_failed_run_offers_resume_and_undo(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    fake.will("fail")
    await deploy(reader)
    await ends(place, "failed")
    page = await reader.get("/setup/runs/first")
    assert "answered 500" in page.text and "look at the mirror" in page.text and SECRET not in page.html
    assert {form.action.rpartition("/")[2] for form in page.forms if "/runs/" in form.action} == {"resume", "undo"}
    page = await summary(reader)
    fake.will_not("fail")
    await reader.get("/setup/runs/first")
    await reader.submit("/setup/runs/first/resume")
    await ends(place, "completed")


async def test_a_run_can_be_aborted_and_undone(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    fake.will("hold")
    await deploy(reader)
    await until(lambda: run_of(place).status == "running", "it runs")
    await reader.get("/setup/runs/first")
    await reader.submit("/setup/runs/first/abort")
    await ends(place, "aborted")
    fake.will_not("hold")
    await reader.get("/setup/runs/first")
    await reader.submit("/setup/runs/first/undo")
    await ends(place, "undone")
    page = await reader.get("/setup/runs/first")
    assert "undone" in page.text and not [form for form in page.forms if "/runs/" in form.action]


async def test_removal_asks_for_the_name_of_the_cluster(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    way = "/setup/runs/default/remove"
    page = await reader.get(way)
    assert "destroyed" in page.text and page.form(way).fields["confirm"] == ""
    for typed in ("", "defaul", "Default", "yes"):
        page = await reader.submit(way, confirm=typed)
        assert page.status == 400 and "nothing was changed" in page.text
    assert runs.clusters(fake.state) == []
    await reader.submit(way, confirm="default")
    await until(lambda: run_of(place, "default").status == "refused", "the head of the tool has no such cluster")
    page = await reader.get("/setup/runs/default")
    assert "there is no cluster" in page.text and "refused" in page.text


async def test_only_administrators_deploy_and_only_with_their_own_form(place: Place) -> None:
    operator = await place.reader("operator")
    assert (await operator.get(FORM)).status == 403
    page = await operator.get("/setup")
    assert page.status == 200 and FORM not in page.links()
    assert (await operator.get("/setup/runs/default/remove")).status == 403
    token = (await operator.get("/changes")).form("/logout").fields["form_token"]
    for way in (FORM, "/setup/check", "/setup/runs/default/remove", "/setup/runs/default/resume"):
        page = await operator.post(way, {"form_token": token, "confirm": "default"})
        assert page.status == 403 and "may not edit setups" in page.text, way
    admin = await place.reader()
    for way in (FORM, "/setup/check", "/setup/runs/default/remove"):
        assert (await admin.post(way, {"form_token": token, "confirm": "default"})).status == 403
    nobody = await place.reader("")
    assert (await nobody.post(FORM, {"then": "deploy"})).status == 401
    assert place.service.setups is not None and place.service.setups.runs() == []


@pytest.mark.parametrize("name", ["..", "%2e%2e", "%3Cscript%3E", "a%2Fb", "nobody", "x" * 300])
async def test_names_of_no_run_are_not_found(place: Place, name: str) -> None:
    reader = await place.reader()
    for way in (f"/setup/runs/{name}", f"/setup/runs/{name}/remove"):
        page = await reader.get(way)
        assert page.status == 404 or "/.." in way, page.text
        assert "<script>alert" not in page.html


async def test_the_script_gets_problems_and_values_as_data(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    await reader.get(FORM)
    sent = reader.page.form(FORM).fields | {
        "a.kubernetes.name": "new",
        MASTERS: "node999",
        "a.kubernetes.cni": "calico",
    }
    async with reader.client.post("/setup/check", data=sent) as response:
        answer = await response.json()
        assert response.headers["Cache-Control"] == "no-store"
    assert answer[MASTERS]["problem"] == "node 'node999' not found"
    assert answer["a.kubernetes.cni_manifest"]["asked"] is True


async def test_a_session_that_ended_starts_nothing_and_a_run_goes_on_without_it(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    fake.will("hold")
    await summary(reader)
    sent = reader.page.form(FORM).fields | {"then": "deploy"}
    await reader.submit("/logout")
    assert (await reader.post(FORM, sent)).status == 401
    assert runs.clusters(fake.state) == []
    reader = await place.reader()
    await deploy(reader)
    await reader.submit("/logout")
    fake.will_not("hold")
    await ends(place, "completed")


async def test_two_thousand_nodes_are_named_by_ranges(place: Place, tmp_path: pathlib.Path) -> None:
    fake = await Fake(tmp_path).make(nodes=2000)
    object.__setattr__(place.service, "setups", await fake.setups())
    reader = await place.reader()
    page = await reader.get(FORM)
    assert "node0001..node2000" in page.text and len(page.html) < 100_000
    page = await summary(
        reader,
        a__kubernetes__nodes__masters__nodes="node[0001-0003]",
        a__kubernetes__nodes__workers__nodes="node[0004-0199]",
    )
    assert page.status == 200 and "node[0004-0199]" in page.text


async def test_a_head_without_the_tool_says_so(place: Place) -> None:
    object.__setattr__(place.service, "setups", None)
    page = await (await place.reader()).get("/setup")
    assert page.status == 503 and "bedplate head serve" in page.text


async def test_open_pages_are_told_when_a_run_moves_on(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    async with reader.client.get("/events/stream") as stream:
        await stream.content.readline()
        await deploy(await place.reader())
        async for line in stream.content:
            if line == b"event: setup\n":
                break
        assert await stream.content.readline() == b'data: {"cluster":"first"}\n'
    await ends(place, "completed")


async def test_a_range_without_an_end_is_told_and_costs_nothing(place: Place, fake: Fake) -> None:
    reader = await place.reader()
    for wild in ("node[1-999999999]", "node[", "[", "a" * 100_000, ",,,", "node00[3-1]"):
        page = await summary(reader, a__kubernetes__nodes__masters__nodes=wild)
        assert page.status == 400 and "nothing was changed" in page.text, wild[:40]
