"""The page of people: who may do what, until when, and how somebody is taken over into the tree."""

from __future__ import annotations

import pytest
from tests.ui.web.conftest import Place

from bedplate.api.headapi import PeopleState, PersonState
from bedplate.core.clock import rfc3339

USERS = ("kubernetes", "default", "kubernetes_users")


@pytest.fixture
def known(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A head that has seen two users whom the tool made, one of them with a certificate that ran out."""
    now = rfc3339(place.clock.now())
    rows = [
        PersonState(
            cluster="default",
            user="anna",
            namespace="anna-restricted",
            role="admin",
            owner="cluster",
            state="ready",
            uid=1000,
            gids=[1000, 27],
            paths=["/home/anna"],
            operators=["spark-operator"],
            object="anna-1234567",
            since=now,
            expires="2020-01-01T00:00:00Z",
            access="the certificate expires on 2020-01-01 and was not renewed",
        ),
        PersonState(
            cluster="default", user="anna", namespace="dev", role="view", owner="cluster", state="ready", shared=True
        ),
        PersonState(
            cluster="default",
            user="<b>ben</b>",
            namespace="ben-restricted",
            role="edit",
            owner="cluster",
            state="failed",
            reason="the namespace is being deleted",
        ),
    ]
    state = PeopleState(cluster="default", reached=True, people=rows)
    assert place.service.clusters is not None
    monkeypatch.setattr(place.service.clusters.people, "state", lambda cluster: state)
    return place


async def test_the_page_says_who_may_do_what_and_until_when(known: Place) -> None:
    reader = await known.reader("admin")
    page = await reader.get("/people/default")
    for part in ("anna-restricted", "admin", "1000:1000,27", "/home/anna", "spark-operator", "2020-01-01", "dev"):
        assert part in page.text, part
    assert "the namespace is being deleted" in page.text
    assert "<b>ben</b>" in page.text  # as text: a tag would not be in it
    assert "was not renewed" in page.text


async def test_a_user_of_the_cluster_is_staged_with_the_same_values(known: Place) -> None:
    reader = await known.reader("admin")
    await reader.get("/people/default")
    await reader.submit("/people/default/adopt")
    await reader.get("/changes")
    await reader.submit("/changes/commit", message="take anna over")
    anna = known.head.tree.get((*USERS, "anna"))
    assert anna.values == {
        "role": "admin",
        "uid": 1000,
        "gids": ("1000", "27"),
        "paths": ("/home/anna",),
        "operators": ("spark-operator",),
    }
    assert {key: obj.values for key, obj in anna.below("more_namespaces").items()} == {"dev": {"role": "view"}}


async def test_nobody_unknown_and_no_impossible_name_is_staged(known: Place) -> None:
    reader = await known.reader("admin")
    for user in ("nobody", "<b>ben</b>", ""):
        await reader.get("/people/default")
        assert (await reader.submit("/people/default/adopt", user=user)).status >= 400, user
    assert not known.head.tree.get(USERS[:2]).below(USERS[2])


async def test_an_auditor_reads_and_is_offered_nothing_to_change(known: Place) -> None:
    reader = await known.reader("auditor")
    page = await reader.get("/people/default")
    assert "anna-restricted" in page.text
    assert "Take over" not in page.text and "Add a user" not in page.text
    assert (await reader.post("/people/default/adopt", {"user": "anna"})).status == 403
