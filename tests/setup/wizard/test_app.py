"""The wizard at a terminal that Textual drives. What is shown comes some messages after a key, and is waited for."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from tests.setup.places import site
from tests.waiting import until
from textual import events
from textual.widgets import Button, Input, OptionList, Select, SelectionList, Static

from bedplate.setup.answers import declaration, document, fitting
from bedplate.setup.wizard.app import Wizard
from bedplate.setup.wizard.menu import operations
from bedplate.setup.wizard.steps import Outcome

SIZE = (110, 60)


def wizard(**about: Any) -> Wizard:
    return Wizard(site(**about), document.defaults())


async def shown(app: Wizard, title: str, widget: str) -> None:
    """Return once the page of that title is there, with its widget."""

    def is_ready() -> bool:
        screen, focused = app.screen, app.focused
        is_there = screen.sub_title == title and bool(screen.query(widget))
        return is_there and focused is not None and focused.screen is screen and focused.is_mounted

    await until(is_ready, f"the page {title}")


async def show(app: Wizard, title: str) -> None:
    """Go to the page of that title at once."""
    await begun(app)
    app.go_to(next(index for index, page in enumerate(app.steps.screens) if page.title == title))
    await shown(app, title, "Button")


def press(app: Wizard, *keys: str) -> None:
    """Send keys; the pilot's own way waits for the machine to be idle."""
    for key in keys:
        app.post_message(events.Key(key, None))


async def begun(app: Wizard) -> None:
    """Return once the first page takes keys."""
    await until(lambda: isinstance(app.focused, OptionList), "the first page")


def value(app: Wizard, name: str) -> Input:
    return app.screen.query_one(f"#kubernetes-{name}", Input)


def text(app: Wizard, name: str) -> str:
    return str(app.screen.query_one(name, Static).content)


async def walk(app: Wizard) -> tuple[list[str], list[str]]:
    """Answer every page up to the summary; their titles and helps."""
    typed = {
        "Control-plane nodes": ("nodes-masters-nodes", "node001"),
        "Worker nodes": ("nodes-workers-nodes", "node00[2-3]"),
    }
    titles, helps = [], []
    for page in app.steps.screens[:-1]:
        await shown(app, page.title, "#next")
        titles.append(page.title)
        helps += [str(each.content) for each in app.screen.query(".help").results(Static)]
        if page.title in typed:
            name, answer = typed[page.title]
            value(app, name).value = answer
            await until(functools.partial(is_taken, app, name), "the answer is taken")
        press(app, "ctrl+n")
    await shown(app, "Summary", "#deploy")
    return titles, helps


def question(name: str) -> declaration.Field:
    paths = {path.replace(".", "-"): each for path, each in declaration.by_path().items()}
    return paths[f"kubernetes-{name}"]


def is_taken(app: Wizard, name: str) -> bool:
    return app.steps.text(question(name)) != ""


async def test_answers_are_asked_in_order_and_given_to_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = wizard()
    async with app.run_test(size=SIZE):
        await begun(app)
        press(app, "enter")
        titles, helps = await walk(app)
        app.screen.query_one("#deploy", Button).press()
        await until(lambda: app.return_value is not None, "the wizard ends")
    assert titles == [page.title for page in app.steps.screens[:-1]]
    pages = app.steps.screens
    asked = [each for page in pages for each in app.steps.fields(page)]
    for help_, each in zip(helps, asked, strict=True):
        assert help_.startswith(each.help)
    assert app.return_value is not None
    assert (app.return_value.action, app.return_value.file) == ("deploy", "kubernetes-default.yaml")
    assert fitting.members(app.return_value.answers, site()).workers == ("node002", "node003")
    assert document.load(document.save(app.return_value.answers)).values == app.return_value.answers


async def test_a_wrong_value_is_told_while_it_is_typed_and_stops_next(monkeypatch: pytest.MonkeyPatch) -> None:
    app = wizard()
    bells: list[bool] = []
    monkeypatch.setattr(app, "bell", lambda: bells.append(True))
    async with app.run_test(size=SIZE):
        await show(app, "Networking")
        depth = len(app.screen_stack)
        value(app, "networks-pod").value = "10.141.0.0/17"
        place = "#problem-kubernetes-networks-pod"
        await until(lambda: "overlaps the network internalnet" in text(app, place), "the problem is told")
        press(app, "ctrl+n")
        await until(lambda: bool(bells), "Next is refused")
        value(app, "networks-pod").value = "172.20.0.0/16"
        await until(lambda: text(app, place) == "", "the problem is gone")
        press(app, "ctrl+n")
        await shown(app, "Expose API", "#next")
        assert len(app.screen_stack) == depth + 1


async def test_back_keeps_what_was_typed() -> None:
    app = wizard()
    async with app.run_test(size=SIZE):
        await show(app, "Networking")
        value(app, "name").value = "second"
        await until(lambda: app.steps.text(question("name")) == "second", "the answer is taken")
        press(app, "ctrl+n")
        await shown(app, "Expose API", "#next")
        press(app, "escape")
        await shown(app, "Networking", "#kubernetes-name")
        assert value(app, "name").value == "second"


async def test_another_name_changes_the_prefilled_networks_that_are_shown() -> None:
    app = wizard(networks={"kube-default-pod": "172.29.0.0/16"})
    async with app.run_test(size=SIZE):
        await show(app, "Networking")
        value(app, "name").value = "second"
        await until(lambda: value(app, "networks-pod").value == "172.30.0.0/16", "the network follows")


async def test_a_question_appears_when_it_applies() -> None:
    app = wizard()
    async with app.run_test(size=SIZE):
        await show(app, "Network plugin")
        manifest = app.screen.query_one("#question-kubernetes-cni_manifest")
        await until(lambda: not manifest.display, "it does not apply yet")
        app.screen.query_one("#kubernetes-cni", Select).value = "calico"
        await until(lambda: manifest.display, "it applies")


async def test_an_operator_that_is_ticked_is_asked_about_and_leads_to_its_own_page() -> None:
    app = wizard()
    async with app.run_test(size=SIZE):
        await show(app, "Operators")
        chart = app.screen.query_one("#question-kubernetes-operators-netq-chart")
        await until(lambda: not chart.display, "it does not apply yet")
        app.screen.query_one(SelectionList).select("netq")
        await until(lambda: chart.display, "it applies")
        value(app, "operators-netq-chart").value = "/charts/netq.tgz"
        path = question("operators-netq-chart")
        await until(lambda: app.steps.text(path) == "/charts/netq.tgz", "the answer is taken")
        press(app, "ctrl+n")
        await shown(app, "NetQ", "#next")
        press(app, "escape")
        await shown(app, "Operators", "#next")
        app.screen.query_one(SelectionList).deselect("netq")
        await until(lambda: not chart.display, "it does not apply any more")
        press(app, "ctrl+n")
        await shown(app, "Permission manager", "#next")


async def test_the_summary_shows_a_password_as_stars() -> None:
    app = wizard()
    for name, answer in {"url": "https://mirror", "username": "robot", "password": "hunter2"}.items():
        app.steps.type(question(f"registry_mirror-{name}"), answer)
    async with app.run_test(size=SIZE):
        await show(app, "Summary")
        assert "********" in text(app, "#config") and "hunter2" not in text(app, "#config")
        app.screen.query_one("#show", Button).press()
        await until(lambda: "password: '********'" in text(app, "#config"), "the answers are shown")


async def test_the_summary_shows_and_saves() -> None:
    app = wizard()
    app.steps.type(question("nodes-masters-nodes"), "node001")
    async with app.run_test(size=SIZE):
        await show(app, "Summary")
        app.screen.query_one("#show", Button).press()
        await until(lambda: "masters:" in text(app, "#config"), "the answers are shown")
        app.screen.query_one("#save", Button).press()
        await until(lambda: app.return_value is not None, "the wizard ends")
    assert app.return_value is not None
    assert (app.return_value.action, app.return_value.file) == ("save", "kubernetes-default.yaml")


async def test_the_summary_refuses_answers_with_problems_and_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    app = wizard()
    async with app.run_test(size=SIZE):
        await show(app, "Summary")
        app.screen.query_one("#deploy", Button).press()
        await until(lambda: "at least one control-plane node is needed" in text(app, "#problem"), "the problem is told")
        app.steps.type(question("nodes-masters-nodes"), "node001")
        app.screen.query_one("#file", Input).value = str(tmp_path / "absent" / "file.yaml")
        app.screen.query_one("#save", Button).press()
        await until(lambda: "cannot be written" in text(app, "#problem"), "the file is refused")
        assert app.return_value is None


@pytest.mark.parametrize("clusters", [{}, {"default": 10443}])
async def test_the_first_screen_offers_operations(clusters: dict[str, int]) -> None:
    app = wizard(clusters=clusters)
    async with app.run_test(size=SIZE):
        await begun(app)
        options = app.screen.query_one(OptionList)
        names = [options.get_option_at_index(index).id for index in range(options.option_count)]
        assert names == [each.action for each in operations(site(clusters=clusters))]
        press(app, "end", "enter")
        await until(lambda: app.return_value is not None, "the wizard ends")
    assert app.return_value == Outcome("exit")


async def chosen(app: Wizard, action: str) -> None:
    """Choose an operation of the first screen."""
    await begun(app)
    options = app.screen.query_one(OptionList)
    options.highlighted = options.get_option_index(action)
    press(app, "enter")


async def test_an_operation_that_needs_no_answer_begins_at_once() -> None:
    app = wizard(clusters={"default": 10443})
    async with app.run_test(size=SIZE):
        await chosen(app, "list-users")
        await until(lambda: app.return_value is not None, "the wizard ends")
    assert app.return_value == Outcome("list-users")


async def test_an_operation_asks_for_its_flags_and_does_not_begin_with_wrong_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = wizard(clusters={"first": 10443, "second": 10444}, members={"node001": "second"})
    bells: list[bool] = []
    monkeypatch.setattr(app, "bell", lambda: bells.append(True))
    async with app.run_test(size=SIZE):
        await chosen(app, "remove-nodes")
        await shown(app, "Remove nodes", "#remove_nodes")
        app.screen.query_one("#remove_nodes", Input).value = "node001"
        await until(lambda: "not part of the cluster first" in text(app, "#problem-remove_nodes"), "the problem")
        press(app, "ctrl+n")
        await until(lambda: bool(bells), "it does not begin")
        app.screen.query_one("#cluster", Select).value = "second"
        await until(lambda: text(app, "#problem-remove_nodes") == "", "the problem is gone")
        press(app, "ctrl+n")
        await until(lambda: app.return_value is not None, "the wizard ends")
    flags = {"cluster": "second", "remove_nodes": "node001"}
    assert app.return_value == Outcome("remove-nodes", flags=flags)


async def test_back_leads_from_an_operation_to_the_first_screen() -> None:
    app = wizard(clusters={"default": 10443})
    async with app.run_test(size=SIZE):
        await chosen(app, "modify-user")
        await shown(app, "Modify User", "#modify_user")
        press(app, "escape")
        await begun(app)
