"""Entries of users in a kubeconfig: ours come and go, all others stay."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from bedplate.core import errors
from bedplate.people import kubeconfig
from bedplate.people.kubeconfig import Credentials, Place

PLACE = Place("kubernetes", "https://10.0.0.1:6443", b"CA")
OTHER = Place("kubernetes", "https://10.0.0.2:6443", b"CA2")
FIRST, SECOND = Credentials(b"CERT1", b"KEY1"), Credentials(b"CERT2", b"KEY2")
FOREIGN: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "preferences": {"colors": True},
    "current-context": "work",
    "clusters": [{"name": "kubernetes", "cluster": {"server": "https://work"}}],
    "users": [{"name": "john@kubernetes", "user": {"token": "t"}}],
    "contexts": [{"name": "work", "context": {"cluster": "kubernetes", "user": "john@kubernetes"}}],
}


def added(text: bytes | None, place: Place = PLACE, given: Credentials = FIRST, *, is_current: bool = True) -> bytes:
    return kubeconfig.with_entries(text, place, "john", "john-restricted", given, is_current=is_current)


def test_a_new_file_has_one_context_which_is_the_current_one() -> None:
    document = yaml.safe_load(added(None))
    assert document["current-context"] == "john@kubernetes"
    (context,) = document["contexts"]
    assert context["context"]["namespace"] == "john-restricted"
    assert (document["kind"], document["apiVersion"]) == ("Config", "v1")


def test_entries_of_others_stay_whatever_their_names() -> None:
    document = yaml.safe_load(added(yaml.safe_dump(FOREIGN).encode()))
    for section in ("clusters", "users", "contexts"):
        assert document[section][0] == FOREIGN[section][0]
    assert document["preferences"] == {"colors": True}
    assert document["current-context"] == "john@kubernetes"
    assert [entry["name"] for entry in document["clusters"]] == ["kubernetes", "kubernetes-2"]
    (ours,) = [entry for entry in document["contexts"] if entry["name"] == "john@kubernetes"]
    assert (ours["context"]["cluster"], ours["context"]["user"]) == ("kubernetes-2", "john@kubernetes-2")


def test_a_renewed_certificate_takes_the_place_of_the_old_one() -> None:
    text = added(added(yaml.safe_dump(FOREIGN).encode()), given=SECOND)
    document = yaml.safe_load(text)
    assert [len(document[section]) for section in ("clusters", "users", "contexts")] == [2, 2, 2]
    assert kubeconfig.credentials(text, PLACE, "john") == SECOND


def test_a_renewal_leaves_the_context_that_the_user_chose() -> None:
    text = added(yaml.safe_dump(FOREIGN).encode(), is_current=False)
    assert yaml.safe_load(text)["current-context"] == "work"


def test_two_clusters_of_one_name_have_entries_of_their_own() -> None:
    text = added(added(None), OTHER, SECOND)
    assert kubeconfig.credentials(text, PLACE, "john") == FIRST
    assert kubeconfig.credentials(text, OTHER, "john") == SECOND


def test_removing_the_entries_gives_back_what_was_there() -> None:
    before = yaml.safe_dump({**FOREIGN, "current-context": "work"}).encode()
    after = kubeconfig.without_entries(added(before, is_current=False), PLACE, "john")
    assert after is not None
    assert yaml.safe_load(after) == FOREIGN


def test_nothing_is_left_of_a_file_that_had_only_our_entries() -> None:
    assert kubeconfig.without_entries(added(None), PLACE, "john") is None
    assert kubeconfig.without_entries(None, PLACE, "john") is None


def test_a_file_without_our_entries_is_not_touched() -> None:
    text = b"# mine\n" + yaml.safe_dump(FOREIGN).encode()
    assert kubeconfig.without_entries(text, PLACE, "john") == text


@pytest.mark.parametrize(
    "text", [b"[1", b"- 1", b"kind: Pod", b"clusters: 7", b"users: [x]", b"\xff\x00\x01", b"contexts: [{name: 1}]"]
)
def test_what_is_not_a_kubeconfig_is_refused(text: bytes) -> None:
    with pytest.raises(errors.Invalid):
        added(text)
    with pytest.raises(errors.Invalid):
        kubeconfig.without_entries(text, PLACE, "john")
