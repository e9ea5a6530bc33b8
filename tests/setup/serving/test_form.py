"""The form of a deployment as data: the questions, the order and the messages of the wizard."""

from __future__ import annotations

import pytest
from tests.setup.places import MINIMAL, site

from bedplate.api.setups import SetupForm, SetupQuestion
from bedplate.core.clock import ManualClock
from bedplate.setup.answers import declaration, document
from bedplate.setup.serving import form as forms
from bedplate.setup.wizard.steps import Steps

MASTERS = "kubernetes.nodes.masters.nodes"


def filled(typed: dict[str, str] | None = None, prefilled: dict[str, str] | None = None, **about: object) -> SetupForm:
    return forms.of_typed(site(**about), typed or {}, prefilled or {}, ManualClock())  # type: ignore[arg-type]


def questions(form: SetupForm) -> dict[str, SetupQuestion]:
    return {question.path: question for screen in form.screens for question in screen.questions}


def test_it_has_every_question_of_the_declaration_with_help_in_the_order_of_the_wizard() -> None:
    form = filled()
    assert [screen.title for screen in form.screens] == [screen.title for screen in declaration.SCREENS[:-1]]
    assert sorted(questions(form)) == sorted(declaration.by_path())
    assert all(question.help and question.title for question in questions(form).values())


def test_values_are_prefilled_as_in_the_wizard() -> None:
    steps = Steps(site(), document.defaults())
    for path, question in questions(filled()).items():
        assert question.text == steps.text(declaration.by_path()[path]), path


def test_messages_are_those_of_the_tool_beside_the_question() -> None:
    form = filled({"kubernetes.networks.pod": "10.141.0.0/16", MASTERS: "node009"})
    known = questions(form)
    assert known["kubernetes.networks.pod"].problem == "10.141.0.0/16 overlaps the network internalnet (10.141.0.0/16)"
    assert known[MASTERS].problem == "node 'node009' not found"
    assert not form.answers


def test_a_prefilled_text_that_nobody_touched_follows_the_other_answers() -> None:
    first = questions(filled({}, {}, clusters={"default": 10443}))
    shown = {path: question.text for path, question in first.items() if question.prefilled}
    typed = {path: question.text for path, question in first.items()}
    about = {"clusters": {"other": 10443}, "networks": {"kube-new-pod": "172.29.0.0/16"}}
    form = filled({**typed, "kubernetes.name": "new"}, shown, **about)
    again = filled({**typed, "kubernetes.name": "other2"}, shown, **about)
    path = "kubernetes.networks.pod"
    assert questions(form)[path].text != questions(again)[path].text
    assert questions(form)["kubernetes.proxy.port"].text == "10444"


def test_one_wrong_answer_does_not_empty_what_is_prefilled() -> None:
    good, bad = (
        questions(filled({MASTERS: "node001"})),
        questions(filled({MASTERS: "node001", "kubernetes.name": "A b"})),
    )
    assert bad["kubernetes.name"].text == "A b"
    for path in ("kubernetes.networks.pod", "kubernetes.networks.internal", "kubernetes.proxy.port", "kubernetes.fqdn"):
        assert bad[path].text == good[path].text != ""


def test_the_answers_are_a_file_that_the_tool_reads() -> None:
    form = filled({MASTERS: "node001", "kubernetes.name": "first"})
    assert not form.problems
    loaded = document.load(form.answers).values
    assert (loaded["kubernetes"]["name"], loaded["kubernetes"]["nodes"]["masters"]["nodes"]) == ("first", ["node001"])


def test_answers_of_a_file_give_the_same_form() -> None:
    form = forms.of_answers(site(), document.load(MINIMAL).values, ManualClock())
    assert questions(form)["kubernetes.nodes.workers.nodes"].text == "node002, node003"
    assert not form.problems and form.answers


@pytest.mark.parametrize("name", ["..", "<script>", "a/b", "../../etc", "a b", "-", "A", "x" * 40, ""])
def test_a_name_that_is_none_is_told(name: str) -> None:
    form = filled({"kubernetes.name": name, MASTERS: "node001"})
    assert [problem.path for problem in form.problems] == ["kubernetes.name"]
    assert not form.answers


def test_names_are_offered_one_by_one_unless_there_are_too_many_or_a_range_was_typed() -> None:
    assert questions(filled())[MASTERS].names == [f"node00{number}" for number in range(1, 7)]
    assert questions(filled({MASTERS: "node00[1-3]"}))[MASTERS].names == []
    many = questions(filled(nodes=2000))[MASTERS]
    assert many.names == [] and many.available == "node001..node2000"


def test_a_password_within_an_address_is_refused_and_not_shown_again() -> None:
    form = filled({"kubernetes.registry_mirror.url": "https://robot:hunter2@mirror", MASTERS: "node001"})
    question = questions(form)["kubernetes.registry_mirror.url"]
    assert question.problem and "hunter2" not in repr(form)


def test_operators_are_ticked_and_asked_about_once_they_are() -> None:
    known = questions(filled())
    assert "metallb" in known["kubernetes.operators"].names and not known["kubernetes.operators.metallb.chart"].asked
    typed = {"kubernetes.operators": "metallb", MASTERS: "node001"}
    form = filled(typed)
    assert questions(form)["kubernetes.operators.metallb.chart"].asked
    assert [problem.path for problem in form.problems] == ["kubernetes.operators.metallb.chart"]
    form = filled({**typed, "kubernetes.operators.metallb.chart": "/m.tgz"})
    assert document.load(form.answers).values["kubernetes"]["operators"]["metallb"]["chart"] == "/m.tgz"
    again = filled({path: question.text for path, question in questions(form).items()})
    assert again.answers == form.answers


def test_an_operator_that_is_none_is_told_beside_the_list() -> None:
    form = filled({"kubernetes.operators": "bogus, metallb", MASTERS: "node001"})
    assert "unknown operator" in questions(form)["kubernetes.operators"].problem and not form.answers
    assert questions(form)["kubernetes.fqdn"].text


def test_a_password_is_marked_as_one_and_stays_in_the_form() -> None:
    mirror = {"url": "https://mirror", "username": "robot", "password": "hunter2"}
    form = filled({MASTERS: "node001", **{f"kubernetes.registry_mirror.{key}": text for key, text in mirror.items()}})
    question = questions(form)["kubernetes.registry_mirror.password"]
    assert (question.kind, question.text) == ("secret", "hunter2")
    assert document.load(form.answers).values["kubernetes"]["registry_mirror"]["password"] == "hunter2"


def test_keys_that_are_no_question_do_not_count() -> None:
    assert filled({"kubernetes.nonsense": "1", MASTERS: "node001"}) == filled({MASTERS: "node001"})


def test_answers_are_read_once_for_a_whole_form(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = [], document.problems
    monkeypatch.setattr(document, "problems", lambda answers: reads.append(1) or read(answers))
    filled({MASTERS: "node001", **{each.path: "" for each in declaration.FIELDS if each.is_prefilled}})
    few, more = len(reads), {each.path: each.kind.text(each.default) for each in declaration.FIELDS}
    filled({**more, MASTERS: "node001"})
    assert len(reads) == 2 * few and few < 10
