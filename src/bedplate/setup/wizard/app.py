"""The wizard's screens.

In: a site, the answers to start from, and whether a run was interrupted. Out: an `Outcome`. Every question has its help
below it, and what is wrong with its value as soon as it is typed. Ctrl+N goes on, Escape goes back, Ctrl+Q leaves.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Button, Footer, Header, Input, OptionList, Select, SelectionList, Static
from textual.widgets.option_list import Option

from bedplate.setup.answers import declaration, document
from bedplate.setup.answers.declaration import Field
from bedplate.setup.answers.declaration import Screen as Page
from bedplate.setup.answers.kinds import Secret
from bedplate.setup.answers.maps import Operators
from bedplate.setup.answers.site import Site
from bedplate.setup.operators import OPERATORS
from bedplate.setup.wizard.menu import Asking, Entry, operations
from bedplate.setup.wizard.steps import Outcome, Steps

__all__ = ["Wizard"]


class Wizard(App[Outcome]):
    """Run it with `run_async`; None stands for a wizard that was left."""

    TITLE = "Kubernetes Setup"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "quit", "Leave", priority=True)]
    CSS = """
    .about { padding: 1 2 0 2; }
    .question { height: auto; padding: 1 2 0 2; }
    .title { text-style: bold; }
    .help { color: $text-muted; }
    .problem { color: $error; }
    .buttons { height: auto; dock: bottom; padding: 0 2 1 2; }
    .buttons Button { margin-right: 2; }
    #config { padding: 0 2; }
    OptionList { margin: 1 2; }
    .question OptionList { margin: 0; height: auto; }
    """

    def __init__(
        self,
        site: Site,
        start: Mapping[str, Any],
        *,
        is_interrupted: bool = False,
        has_device_mapper: bool = False,
    ) -> None:
        super().__init__()
        self.steps = Steps(site, start, has_device_mapper=has_device_mapper)
        self._is_interrupted = is_interrupted

    def on_mount(self) -> None:
        self.push_screen(Operations(self.steps.site, is_interrupted=self._is_interrupted))

    def go_to(self, index: int) -> None:
        """Show the screen with this index; those before it stay as they are."""
        page = self.steps.screens[index]
        is_last = page.number == declaration.SUMMARY
        self.push_screen(Summary(self.steps) if is_last else Questions(self.steps, index, page))


class _Step(Screen[None]):
    """What all screens have in common."""

    @property
    def wizard(self) -> Wizard:
        app = self.app
        assert isinstance(app, Wizard)
        return app

    def action_back(self) -> None:
        self.wizard.pop_screen()


class Operations(_Step):
    """The first screen."""

    def __init__(self, site: Site, *, is_interrupted: bool) -> None:
        super().__init__()
        self._site = site
        self._operations = operations(site, is_interrupted=is_interrupted)

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static("What should be done?", classes="about")
        yield OptionList(
            *(Option(f"{each.title:<18} {each.about}", id=each.action) for each in self._operations), id="operations"
        )
        yield Footer()

    @on(OptionList.OptionSelected)
    def choose(self, event: OptionList.OptionSelected) -> None:
        chosen = next(each for each in self._operations if each.action == event.option.id)
        asking = Asking(chosen, self._site)
        if chosen.action == "deploy":
            self.wizard.go_to(0)
        elif asking.entries:
            self.wizard.push_screen(Asked(asking))
        else:
            self.wizard.exit(Outcome(chosen.action))


class Asked(_Step):
    """What has to be known before an operation begins."""

    AUTO_FOCUS = "Input, Select"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n", "begin", "Begin", priority=True),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self, asking: Asking) -> None:
        super().__init__()
        self._asking = asking
        self._entries = {entry.flag: entry for entry in asking.entries}
        self.sub_title = asking.operation.title

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static(f"{self._asking.operation.title}\n{self._asking.operation.about}", classes="about")
        with VerticalScroll():
            for name, entry in self._entries.items():
                with Vertical(classes="question"):
                    yield Static(entry.title, classes="title")
                    yield self._widget(name, entry)
                    yield Static(entry.help, classes="help")
                    yield Static("", classes="problem", id=f"problem-{name}")
        with Horizontal(classes="buttons"):
            yield Button("Back", id="back")
            yield Button("Begin", id="begin", variant="primary")
        yield Footer()

    def _widget(self, name: str, entry: Entry) -> Widget:
        text = self._asking.text(entry)
        if not entry.options:
            return Input(text, id=name)
        return Select([(each or "as it is", each) for each in entry.options], value=text, allow_blank=False, id=name)

    def on_mount(self) -> None:
        self._show()

    @on(Input.Changed)
    def typed(self, event: Input.Changed) -> None:
        self._take(str(event.input.id), event.value)

    @on(Select.Changed)
    def chosen(self, event: Select.Changed) -> None:
        self._take(str(event.select.id), str(event.value))

    def _take(self, name: str, text: str) -> None:
        self._asking.type(self._entries[name], text)
        self._show()

    @on(Input.Submitted)
    def entered(self) -> None:
        self.focus_next()

    @on(Button.Pressed, "#begin")
    def action_begin(self) -> None:
        if self._show():
            self.wizard.bell()
        else:
            self.wizard.exit(Outcome(self._asking.operation.action, flags=self._asking.values()))

    @on(Button.Pressed, "#back")
    def back(self) -> None:
        self.action_back()

    def _show(self) -> bool:
        """Say what is wrong; whether anything is."""
        problems = self._asking.problems()
        for name in self._entries:
            self.query_one(f"#problem-{name}", Static).update(problems.get(name, ""))
        return bool(problems)


class Questions(_Step):
    """The questions of one page."""

    AUTO_FOCUS = "Input, Select, SelectionList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n", "next", "Next", priority=True),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self, steps: Steps, index: int, page: Page) -> None:
        super().__init__()
        self._steps = steps
        self._index = index
        self._page = page
        self._fields = {_id(question): question for question in steps.fields(page)}
        self.sub_title = page.title

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static(f"{self._page.title}\n{self._page.about}", classes="about")
        with VerticalScroll():
            for name, question in self._fields.items():
                with Vertical(classes="question", id=f"question-{name}"):
                    yield Static(question.title, classes="title")
                    yield self._widget(name, question)
                    yield Static(self._help(question), classes="help")
                    yield Static("", classes="problem", id=f"problem-{name}")
        with Horizontal(classes="buttons"):
            yield Button("Back", id="back")
            yield Button("Next", id="next", variant="primary")
        yield Footer()

    def _widget(self, name: str, question: Field) -> Widget:
        if isinstance(question.kind, Operators):
            chosen = self._steps.value(question)
            return SelectionList(*((each.title, each.name, each.name in chosen) for each in OPERATORS), id=name)
        choices = self._steps.choices(question)
        if not choices:
            return Input(self._steps.text(question), id=name, password=isinstance(question.kind, Secret))
        text = self._steps.text(question)
        known = [*choices, *([text] if text not in choices else [])]
        return Select([(each, each) for each in known], value=text, allow_blank=False, id=name)

    def _help(self, question: Field) -> str:
        offered = "" if isinstance(question.kind, Operators) else self._steps.offered(question)
        return f"{question.help} Available: {offered}." if offered else question.help

    def on_mount(self) -> None:
        self._show()

    def on_screen_resume(self) -> None:
        self._show()

    @on(Input.Changed)
    def typed(self, event: Input.Changed) -> None:
        self._steps.type(self._fields[str(event.input.id)], event.value)
        self._show(without=event.input)

    @on(Select.Changed)
    def chosen(self, event: Select.Changed) -> None:
        self._steps.type(self._fields[str(event.select.id)], str(event.value))
        self._show(without=event.select)

    @on(SelectionList.SelectedChanged)
    def ticked(self, event: SelectionList.SelectedChanged[str]) -> None:
        question = self._fields[str(event.selection_list.id)]
        self._steps.type(question, question.kind.text(dict.fromkeys(event.selection_list.selected)))
        self._show()

    @on(Input.Submitted)
    def entered(self) -> None:
        self.focus_next()

    @on(Button.Pressed, "#next")
    def action_next(self) -> None:
        if self._show():
            self.wizard.bell()
            return
        self.wizard.go_to(self._index + 1)

    @on(Button.Pressed, "#back")
    def back(self) -> None:
        self.action_back()

    def _show(self, without: Widget | None = None) -> bool:
        """Bring what is shown up to date; whether something is wrong."""
        problems = self._steps.problems_of(self._page)
        for name, question in self._fields.items():
            self.query_one(f"#question-{name}").display = self._steps.is_asked(question)
            self.query_one(f"#problem-{name}", Static).update(problems.get(question.path, ""))
            widget = self.query_one(f"#{name}")
            if isinstance(widget, Input) and widget is not without and question.path not in problems:
                text = self._steps.text(question)
                if widget.value != text:
                    with self.prevent(Input.Changed):
                        widget.value = text
        return bool(problems)


class Summary(_Step):
    """The last page: what was answered, and what is done with it."""

    AUTO_FOCUS = "#file"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back")]

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps
        self.sub_title = "Summary"

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static("Summary\nSave the answers, show them, or deploy.", classes="about")
        with VerticalScroll():
            yield Static("\n".join(self._rows()), id="config", markup=False)
        with Vertical(classes="question"):
            yield Static("File for the answers", classes="title")
            yield Input(f"kubernetes-{self._steps.values['kubernetes']['name']}.yaml", id="file")
            yield Static("", classes="problem", id="problem")
        with Horizontal(classes="buttons"):
            yield Button("Back", id="back")
            yield Button("Save config & deploy", id="deploy", variant="primary")
            yield Button("Save config", id="save")
            yield Button("Show config", id="show")
            yield Button("Exit", id="exit")
        yield Footer()

    def _rows(self) -> Iterable[str]:
        for page in self._steps.screens:
            for question in self._steps.fields(page):
                if self._steps.is_asked(question):
                    yield f"{page.title + ': ' + question.title:<48} {self._steps.shown(question)}"

    def on_mount(self) -> None:
        self._problem()

    def _problem(self) -> str:
        problems = self._steps.problems()
        text = "; ".join(f"{path}: {text}" for path, text in problems.items())
        self.query_one("#problem", Static).update(text)
        return text

    @on(Button.Pressed)
    def pressed(self, event: Button.Pressed) -> None:
        match event.button.id:
            case "back":
                self.action_back()
            case "exit":
                self.wizard.exit(Outcome("exit"))
            case "show":
                self.query_one("#config", Static).update(document.save(self._steps.masked))
            case str(action):
                self._end(action)

    def _end(self, action: str) -> None:
        file = self.query_one("#file", Input).value.strip()
        if self._problem():
            self.wizard.bell()
        elif not file or pathlib.Path(file).is_dir() or not pathlib.Path(file).absolute().parent.is_dir():
            self.query_one("#problem", Static).update(f"{file or 'an empty name'} cannot be written: choose a file")
        else:
            self.wizard.exit(Outcome(action, self._steps.values, file))


def _id(question: Field) -> str:
    return question.path.replace(".", "-")
