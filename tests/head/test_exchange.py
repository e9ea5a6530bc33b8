"""Export and import."""

from __future__ import annotations

import pytest
from tests.head import sites

from bedplate.core import errors
from bedplate.head.entities import SCHEMA
from bedplate.head.exchange import export, read, stage
from bedplate.head.objects import Obj, Secret
from bedplate.head.session import Session
from bedplate.head.tree import Tree


def test_export_import_export_is_identical() -> None:
    tree = sites.manual()
    text = export(tree)
    session = Session(Tree(SCHEMA))
    stage(session, text)
    assert export(session.tree) == text
    assert session.tree == tree


def with_secret() -> Tree:
    return Tree(SCHEMA, [("kubernetes", Obj("KubeCluster", "default", {"kube_ca_key": Secret("hush"), "notes": "n"}))])


def test_secrets_are_left_out_unless_asked_for() -> None:
    tree = with_secret()
    assert "hush" not in export(tree)
    session = Session(Tree(SCHEMA))
    stage(session, export(tree, with_secrets=True))
    assert session.tree == tree


def test_an_import_keeps_secrets_that_the_document_does_not_mention() -> None:
    tree = with_secret()
    session = Session(tree)
    stage(session, export(tree).replace("notes: n", "notes: other"))
    assert session.tree.get(("kubernetes", "default")).values == {"kube_ca_key": Secret("hush"), "notes": "other"}
    assert [change.path[-1] for change in session.staged()] == ["notes"]


def test_an_import_of_the_same_tree_stages_nothing() -> None:
    session = Session(sites.manual())
    stage(session, export(sites.manual()), prune=True)
    assert session.edits() == []


def test_pruning_removes_what_the_document_does_not_name() -> None:
    tree = sites.manual()
    session = Session(tree)
    stage(session, export(tree.with_object("device", "node007", None)))
    assert session.edits() == []
    stage(session, export(tree.with_object("device", "node007", None)), prune=True)
    assert [(edit.key, edit.new) for edit in session.edits()] == [("node007", None)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "not YAML"),
        ("format: other", "not an export"),
        ("format: bedplate/head/v1\nnonsense: {}", "no mode 'nonsense'"),
        ("format: bedplate/head/v1\ncategory: {a: {type: Nonsense}}", "cannot contain Nonsense"),
        ("format: bedplate/head/v1\ncategory: {a: {values: {colour: red}}}", "has no field 'colour'"),
        ("format: bedplate/head/v1\ncategory: {a: {more: 1}}", "and nothing else"),
        ("format: bedplate/head/v1\ncategory: {a: {children: {roles: {nonsense: {}}}}}", "no role 'nonsense'"),
        ("format: bedplate/head/v1\ncategory: {a: {children: {roles: {docker::host: {}}}}}", "cannot be called"),
        ("format: bedplate/head/v1\nkubernetes: {a: {values: {external_port: 70000}}}", "External port: 70000"),
        ("format: bedplate/head/v1\ncategory: {a b: {}}", "name: 'a b' is not a name"),
    ],
)
def test_what_cannot_be_imported_is_named(text: str, words: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        read(SCHEMA, text)
    assert words in str(caught.value)
