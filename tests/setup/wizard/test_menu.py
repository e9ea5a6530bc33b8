"""The first screen of the wizard without a terminal: its operations, what they ask, and the flags that come of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.setup.places import site

from bedplate.setup.tool import flags
from bedplate.setup.wizard.menu import Asking, Operation, operations

ONE = {"default": 10443}
_ELSEWHERE = {"list-versions", "list-operators-versions", "kubeconfig-of", "resume", "undo"}
"""Actions that print one thing, and those that are offered with an interrupted run."""


def asking(action: str, **about: Any) -> Asking:
    place = site(**{"clusters": ONE, **about})
    return Asking(next(each for each in operations(place) if each.action == action), place)


def answer(made: Asking, **texts: str) -> None:
    for entry in made.entries:
        made.type(entry, texts.get(entry.flag, made.text(entry)))


def test_before_a_cluster_exists_only_deploy_and_exit_are_offered() -> None:
    assert [each.title for each in operations(site())] == ["Deploy", "Exit"]
    assert [each.title for each in operations(site(), is_interrupted=True)] == ["Deploy", "Resume", "Undo", "Exit"]


def test_afterwards_every_action_that_has_a_flag_is_offered() -> None:
    offered = {each.action for each in operations(site(clusters=ONE))}
    assert offered - {"deploy", "exit"} == {flag.name for flag in flags.ACTION_FLAGS} - _ELSEWHERE


@pytest.mark.parametrize("operation", operations(site(clusters=ONE)), ids=lambda each: each.action)
def test_what_is_asked_are_flags_of_the_action(operation: Operation) -> None:
    known = {flag.attribute: flag for flag in flags.FLAGS}
    made = Asking(operation, site(clusters={"first": 10443, "second": 10444}))
    for entry in made.entries:
        flag = known[entry.flag]
        assert flag.name == made.operation.action or made.operation.action in (flag.actions or ())
        assert (entry.kind in ("switch", "name of the cluster")) == (flag.kind is None)
    own = known.get(made.operation.action.replace("-", "_"))
    if own is not None and own.kind is not None and not own.is_bare:
        assert any(entry.flag == own.attribute and entry.is_needed for entry in made.entries)


def test_with_one_cluster_nobody_is_asked_which() -> None:
    assert [entry.flag for entry in asking("remove").entries] == ["yes_i_really_mean_it"]
    several = asking("list-users", clusters={"first": 10443, "second": 10444})
    assert [entry.flag for entry in several.entries] == ["cluster"]
    assert several.values() == {"cluster": "first"}


def test_a_removal_needs_the_name_of_the_cluster() -> None:
    made = asking("remove")
    assert made.problems() == {"yes_i_really_mean_it": "type default to confirm"}
    answer(made, yes_i_really_mean_it="defaul")
    assert made.problems()
    answer(made, yes_i_really_mean_it="default")
    assert made.problems() == {}
    assert made.values() == {"yes_i_really_mean_it": True}


def test_nodes_are_those_that_are_free_and_those_of_the_cluster() -> None:
    members = {"node002": "default"}
    made = asking("add-nodes", members=members)
    assert made.problems() == {"add_nodes": "this is needed"}
    for text, why in {
        "node00[2-3]": "node002 is part of the cluster default already",
        "node999": "node999: there is no such node",
        "node00[1": "",
    }.items():
        answer(made, add_nodes=text)
        assert why in made.problems()["add_nodes"]
    answer(made, add_nodes="node001, node00[3-4]", control_plane="yes")
    assert made.values() == {"add_nodes": "node001, node00[3-4]", "control_plane": True}
    made = asking("remove-nodes", members=members)
    answer(made, remove_nodes="node001")
    assert made.problems() == {"remove_nodes": "node001 is not part of the cluster default"}


def test_what_was_left_empty_is_not_given() -> None:
    made = asking("modify-user")
    answer(made, modify_user="alice", role="view")
    assert made.values() == {"modify_user": "alice", "role": "view"}
    made = asking("backup-permissions")
    answer(made, backup_permissions="/tmp/file")
    assert made.values() == {"backup_permissions": Path("/tmp/file")}
    assert asking("etcd-snapshot").values() == {}
