"""What the flags of the user management say, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.people import settings
from bedplate.setup.people import flags
from bedplate.setup.people.request import Action, Request


def request(action: Action = Action.ADD, user: str = "john", **values: Any) -> Request:
    return Request(action=action, clusters=(), user=user, **values)


def test_values_that_were_not_given_stay_open() -> None:
    given, problems = flags.read(request())
    assert (given, problems) == (settings.Settings(), [])


def test_every_problem_is_reported_at_once() -> None:
    _, problems = flags.read(
        request(
            user="system:admin",
            namespace="No_Label",
            role="root",
            runas_uid="-1",
            runas_gids="7,x",
            user_paths="home,/a/../etc,/",
            operators="mpi-operator",
            add_to_namespace=True,
            remove_from_namespace=True,
        )
    )
    text = "\n".join(problems)
    for part in ("system:admin", "No_Label", "root", "-1", "'x'", "'home'", "/a/../etc", "'/'", "mpi-operator"):
        assert part in text
    assert "mutually exclusive" in text


@pytest.mark.parametrize(
    "user", ["", ".", "..", "-x", "system:admin", "a/b", "a b", "a\n", "é", "x" * 64, "john-", "$(id)"]
)
def test_names_that_nobody_can_have_are_refused(user: str) -> None:
    assert flags.read(request(user=user))[1]


@pytest.mark.parametrize("user", ["john", "John", "john.doe", "john_doe", "j", "user-7", "7of9"])
def test_names_of_accounts_are_accepted(user: str) -> None:
    assert flags.read(request(user=user))[1] == []


def test_both_spellings_of_an_operator_are_one() -> None:
    given, _ = flags.read(request(operators="cm-kubernetes-spark-operator, spark-operator,cm-jupyter-kernel-operator"))
    assert given.operators == ("spark-operator", "cm-jupyter-kernel-operator")


def test_an_empty_list_of_operators_is_not_the_same_as_none_given() -> None:
    assert flags.read(request(operators=""))[0].operators == ()
    assert flags.read(request())[0].operators is None


def test_paths_are_normalised_and_given_once() -> None:
    given, problems = flags.read(request(user_paths="/home/john/,/home//john,/scratch"))
    assert (given.paths, problems) == (("/home/john", "/scratch"), [])


@pytest.mark.parametrize("uid", ["0", "1000", "2147483647"])
def test_uids_are_integers(uid: str) -> None:
    assert flags.read(request(runas_uid=uid))[0].uid == int(uid)


@pytest.mark.parametrize("uid", ["", "1_000", " 7", "٣", "2147483648", "0x7", "1.0"])
def test_other_text_is_not_a_uid(uid: str) -> None:
    assert flags.read(request(runas_uid=uid))[1]


def test_flags_of_a_change_are_refused_with_other_actions() -> None:
    _, problems = flags.read(request(Action.REMOVE, role="view", add_to_namespace=True, namespace="dev"))
    assert len(problems) == 2


def test_a_namespace_is_needed_to_add_a_user_to_it_or_to_remove_them() -> None:
    assert flags.read(request(Action.MODIFY, add_to_namespace=True))[1]
    assert flags.read(request(Action.MODIFY, remove_from_namespace=True))[1]


def test_the_authority_is_given_whole_or_not_at_all(tmp_path: Any) -> None:
    assert flags.read(request(ca_certificate=tmp_path))[1]


@given(st.text(), st.text(), st.text(), st.text(), st.text(), st.text())
def test_any_text_is_either_read_or_refused(
    user: str, namespace: str, uid: str, gids: str, paths: str, operators: str
) -> None:
    given, problems = flags.read(
        request(user=user, namespace=namespace, runas_uid=uid, runas_gids=gids, user_paths=paths, operators=operators)
    )
    if not problems:
        assert given.uid is not None and given.gids and all(path.startswith("/") for path in given.paths or ())
