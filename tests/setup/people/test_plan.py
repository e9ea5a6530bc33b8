"""Which objects a request writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bedplate.api import permissions
from bedplate.api.resources import RawObject
from bedplate.core import errors
from bedplate.people import grants, plan
from bedplate.people.accounts import Account
from bedplate.people.grants import Grant, Observed
from bedplate.setup.people import backup, flags
from bedplate.setup.people.request import Action, Request

JOHN = Account("john", 1000, (1000, 27), Path("/home/john"))


def observed(*present: Grant, namespaces: tuple[str, ...] = ("dev",)) -> Observed:
    """A cluster with these grants, as the server would have them."""
    objects: dict[str, tuple[RawObject, ...]] = {ref.plural: () for ref in grants.KINDS}
    for grant in present:
        for ref, obj in grants.objects_of(grant):
            objects[ref.plural] = (*objects[ref.plural], obj)
    return Observed(objects, frozenset(namespaces) | {grant.namespace for grant in present})


def grant(user: str = "john", namespace: str = "john-restricted", **values: Any) -> Grant:
    values.setdefault("name", permissions.release_name(user, namespace))
    return Grant(user=user, namespace=namespace, **{"uid": 1000, "gids": (1000,), "paths": ("/home/john",), **values})


def add(present: Observed, account: Account = JOHN, **values: Any) -> list[plan.Change]:
    request = Request(action=Action.ADD, clusters=(), user=account.name, **values)
    given, problems = flags.read(request)
    assert not problems
    return plan.add(account, given, present, is_shared=request.add_to_namespace)


def modify(present: Observed, user: str = "john", **values: Any) -> list[plan.Change]:
    request = Request(action=Action.MODIFY, clusters=(), user=user, **values)
    given, problems = flags.read(request)
    assert not problems
    return plan.modify(user, given, present, is_shared=request.add_to_namespace)


def test_a_new_user_gets_the_defaults_of_the_account() -> None:
    (change,) = add(observed())
    assert change.after is not None
    assert change.name == change.after["metadata"]["name"] == permissions.release_name("john", "john-restricted")
    assert change.after["metadata"]["labels"] == {"namespace": "john-restricted", "username": "john"}
    assert change.after["spec"] == {
        "username": "john",
        "namespace": "john-restricted",
        "role": "edit",
        "uid": 1000,
        "gids": [1000, 27],
        "user_paths": ["/home/john"],
        "allow_all_uids": False,
        "create_namespace": True,
        "create_service_account": True,
    }


def test_operators_are_objects_of_their_own_with_names_of_their_own() -> None:
    changes = add(observed(), operators="spark-operator,cm-jupyter-kernel-operator")
    assert [change.ref.plural for change in changes] == [
        grants.USERS.plural,
        permissions.SPARKS.plural,
        permissions.JUPYTER_KERNELS.plural,
    ]
    assert len({change.name for change in changes}) == 3


def test_a_user_that_exists_is_not_added_again() -> None:
    with pytest.raises(errors.AlreadyExists, match="john-restricted"):
        add(observed(grant()))


@pytest.mark.parametrize("namespace", ["kube-system", "cm-permissions", "cmkpm-system", "kube-public"])
def test_namespaces_of_the_cluster_itself_are_refused(namespace: str) -> None:
    with pytest.raises(errors.Invalid, match="belongs to the cluster"):
        add(observed(), namespace=namespace)


def test_a_namespace_must_exist_to_add_somebody_to_it() -> None:
    with pytest.raises(errors.Invalid, match="does not exist"):
        add(observed(), namespace="absent", add_to_namespace=True)
    (change,) = add(observed(), namespace="dev", add_to_namespace=True)
    assert change.after is not None and change.after["spec"]["create_namespace"] is False


def test_the_namespace_of_another_user_cannot_be_taken() -> None:
    with pytest.raises(errors.Invalid, match="belongs to the user 'anna'"):
        add(observed(grant("anna", "team")), namespace="team")


def test_the_namespace_plays_no_part_for_cluster_administrators() -> None:
    (change,) = add(observed(), role="cluster-admin", namespace="absent", add_to_namespace=True)
    assert change.after is not None and change.after["spec"]["role"] == "cluster-admin"


def test_names_that_kubernetes_cannot_have_are_told_apart() -> None:
    names = set()
    for user in ("john.doe", "John.Doe", "john_doe", "john-doe"):
        account = Account(user, 1000, (1000,), Path("/home/x"))
        (change,) = add(observed(), account)
        assert change.after is not None and change.after["spec"]["username"] == user
        names.add((change.name, change.after["spec"]["namespace"]))
        assert permissions.names.dns_label_problems(change.name) == []
        assert permissions.names.dns_label_problems(change.after["spec"]["namespace"]) == []
    assert len({name for name, _ in names}) == len({namespace for _, namespace in names}) == 4


def test_a_change_replaces_what_was_given_and_keeps_the_rest() -> None:
    present = observed(grant(operators=("spark-operator",)))
    changes = modify(present, user_paths="/home/john,/scratch", operators="cm-jupyter-kernel-operator")
    kinds = {change.ref.plural: change for change in changes}
    user = kinds[grants.USERS.plural]
    assert user.after is not None and user.after["spec"]["user_paths"] == ["/home/john", "/scratch"]
    assert user.after["spec"]["uid"] == 1000
    assert kinds[permissions.SPARKS.plural].after is None
    assert kinds[permissions.JUPYTER_KERNELS.plural].before is None


def test_an_empty_list_takes_all_operators_away() -> None:
    changes = modify(observed(grant(operators=("spark-operator", "postgresql-operator"))), operators="")
    assert sorted(change.ref.plural for change in changes) == sorted(
        [permissions.SPARKS.plural, permissions.POSTGRESQLS.plural]
    )
    assert all(change.after is None for change in changes)


def test_fields_that_the_tool_does_not_know_survive_a_change() -> None:
    present = observed(grant())
    present.objects[grants.USERS.plural][0]["spec"]["allowPrivileged"] = True
    (change,) = modify(present, role="view")
    assert change.after is not None and change.after["spec"]["allowPrivileged"] is True


def test_what_already_is_as_requested_is_not_written() -> None:
    assert modify(observed(grant()), role="edit", user_paths="/home/john") == []


def test_one_more_namespace_has_the_identity_of_the_first() -> None:
    (change,) = modify(observed(grant(uid=7)), namespace="dev", add_to_namespace=True)
    assert change.after is not None
    assert (change.after["spec"]["uid"], change.after["spec"]["create_namespace"]) == (7, False)


def test_revoking_one_namespace_leaves_the_others() -> None:
    present = observed(grant(), grant(namespace="dev", operators=("spark-operator",), create_namespace=False))
    changes = plan.revoke("john", "dev", present)
    assert {change.name for change in changes} == {
        permissions.release_name("john", "dev"),
        permissions.release_name("john", f"dev/{permissions.SPARKS.plural}"),
    }
    with pytest.raises(errors.NotFound):
        plan.revoke("john", "test", present)
    with pytest.raises(errors.Invalid, match="only namespace"):
        plan.revoke("john", "john-restricted", observed(grant()))


def test_removing_a_user_takes_every_object_of_theirs() -> None:
    present = observed(grant(operators=("spark-operator",)), grant(namespace="dev"), grant("anna", "anna-restricted"))
    assert len(plan.remove("john", present)) == 3
    with pytest.raises(errors.NotFound, match="no user 'jon'"):
        plan.remove("jon", present)


def test_shared_namespaces_are_not_those_of_one_user() -> None:
    present = observed(grant(), grant(namespace="dev"), grant("anna", "dev"))
    assert plan.namespaces_alone("john", present) == ["john-restricted"]


def test_several_namespaces_must_be_named() -> None:
    present = observed(grant(namespace="one"), grant(namespace="two"))
    with pytest.raises(errors.Invalid, match="several namespaces"):
        modify(present, role="view")


def test_a_backup_restores_the_same_objects() -> None:
    present = observed(grant(operators=("spark-operator",)), grant("anna", "anna-restricted"))
    text = backup.text_of(present)
    changes = backup.read(text, observed())
    objects: dict[str, tuple[RawObject, ...]] = {ref.plural: () for ref in grants.KINDS}
    for change in changes:
        assert change.after is not None
        objects[change.ref.plural] = (*objects[change.ref.plural], change.after)
    assert backup.text_of(Observed(objects, frozenset())) == text
    assert backup.read(text, present) == []


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "[7]",
        "{",
        "- {kind: Secret, apiVersion: v1}",
        "- {apiVersion: charts.brightcomputing.com/v1alpha1, kind: CmkubernetesPermissionUser, metadata: {name: ..}}",
        "- &a [*a]",
    ],
)
def test_other_files_are_refused_whole(text: str) -> None:
    with pytest.raises(errors.Invalid):
        backup.read(text, observed())
