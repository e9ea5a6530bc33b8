"""Users of the tree on a cluster: the same objects as the tool makes, and no objects but the head's own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.head.committing import commit_session
from tests.head.people.conftest import USERS, Site, pki_of, site_of
from tests.setup.people.worlds import World, stand_in
from tests.waiting import until

from bedplate.api import permissions
from bedplate.api.resources import NAMESPACES, PODS, RawObject
from bedplate.core import errors
from bedplate.head import book as books
from bedplate.head.people.records import Person
from bedplate.people import grants
from bedplate.setup.people.request import Action


def said(obj: RawObject) -> tuple[str, dict[str, object], dict[str, str]]:
    """What an object says, without whose it is."""
    labels = {key: text for key, text in obj["metadata"]["labels"].items() if key != grants.OWNER}
    return obj["metadata"]["name"], obj["spec"], labels


async def test_a_user_of_the_tree_becomes_what_the_tool_makes(site: Site) -> None:
    await site.world.run(Action.ADD, "john", operators="spark-operator", role="admin")
    from_tool = [said(obj) for obj in await site.objects("john")]
    await site.world.run(Action.REMOVE, "john")
    await site.put("john", operators="spark-operator", role="admin")
    row = await site.reaches("john", "ready")
    assert [said(obj) for obj in await site.objects("john")] == from_tool
    assert (row.role, row.namespace, row.owner) == ("admin", "john-restricted", "tree")
    assert row.operators == ["spark-operator"]
    await site.tells("Issued the certificate of john")
    await until(lambda: site.rows("john")[0].expires, "the list shows the expiry")
    about = site.kubeconfig("john").stat()
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o600, os.getuid())


async def test_modifying_and_removing_a_user_follows_the_tree(site: Site) -> None:
    await site.put("john", uid="4711", gids="4711,20", paths="/scratch/john")
    await site.reaches("john", "ready")
    await site.tells("Issued the certificate of john")
    await site.put("john", role="view", paths="none", operators="postgresql-operator")

    async def is_changed() -> bool:
        return len(await site.objects("john")) == 2

    await until(is_changed, "the operator's object is made")
    (user, _) = await site.objects("john")
    assert (user["spec"]["role"], user["spec"]["user_paths"], user["spec"]["uid"]) == ("view", [], 4711)
    await site.remove("john")

    async def is_gone() -> bool:
        return not await site.objects("john")

    await until(is_gone, "all objects of john are gone")
    await until(lambda: not site.kubeconfig("john").exists(), "the kubeconfig is gone")
    await until(lambda: not site.people.book.items(), "the record is gone")
    assert "User john has no rights in namespace john-restricted any more" in site.texts()


async def test_rights_in_further_namespaces_come_and_go_alone(site: Site) -> None:
    await site.put("john")
    await site.reaches("john", "ready")
    session = site.head.session()
    session.add((*USERS, "john", "more_namespaces"), "dev")
    session.set((*USERS, "john", "more_namespaces", "dev"), "role", "view")
    await commit_session(site.head, session)
    text = await site.tells("namespace 'dev' does not exist")
    assert text.startswith("User john in namespace dev")
    assert len(await site.objects("john")) == 1
    await site.client.create(NAMESPACES, {"metadata": {"name": "dev"}})
    session = site.head.session()
    session.set((*USERS, "john", "more_namespaces", "dev"), "operators", "spark-operator")
    await commit_session(site.head, session)
    await site.reaches("john", "ready")
    assert {row.namespace: row.role for row in site.rows("john")} == {"john-restricted": "edit", "dev": "view"}
    session = site.head.session()
    session.remove((*USERS, "john", "more_namespaces", "dev"))
    await commit_session(site.head, session)
    await site.tells("User john has no rights in namespace dev any more")
    assert len(await site.objects("john")) == 1


async def test_a_user_without_an_account_is_told_and_nothing_is_made(site: Site) -> None:
    await site.put("nobody1")
    row = await site.reaches("nobody1", "failed")
    assert "there is no account nobody1 on the head" in row.reason
    assert "getent passwd nobody1" in row.reason
    assert await site.objects() == []


async def test_an_account_that_vanishes_takes_no_rights(site: Site) -> None:
    await site.put("anna")
    await site.reaches("anna", "ready")
    site.accounts.names = ("john",)
    await site.put("anna", role="view")
    await site.tells("there is no account anna")
    (obj,) = await site.objects("anna")
    assert obj["spec"]["role"] == "edit"


async def test_a_refusal_of_the_permission_manager_is_shown(world: World, tmp_path: Path) -> None:
    async with (
        stand_in(world.client, lambda obj: "the paths are wrong"),
        site_of(world, tmp_path, pki_of(world.server)) as site,
    ):
        await site.put("john")
        row = await site.reaches("john", "failed")
        assert row.reason == "the paths are wrong"
        assert not site.kubeconfig("john").exists()


async def test_what_the_tool_made_is_shown_and_not_touched(site: Site) -> None:
    await site.world.run(Action.ADD, "anna", role="view")
    await seen(site, "anna")
    row = await site.reaches("anna", "ready")
    assert (row.owner, row.role) == ("cluster", "view")
    before = await site.objects("anna")
    await site.put("john")
    await site.reaches("john", "ready")
    await site.remove("john")
    await site.tells("User john has no rights")
    assert await site.objects("anna") == before


async def seen(site: Site, user: str) -> None:
    """A pass comes with the next revision, not only every minute."""
    session = site.head.session()
    session.set(("kubernetes", "default"), "notes", f"look at {user}")
    await commit_session(site.head, session)
    await until(lambda: site.rows(user), f"{user} is seen")


async def test_a_user_of_the_tool_who_differs_is_left_and_the_difference_is_named(site: Site) -> None:
    await site.world.run(Action.ADD, "anna", role="view")
    before = await site.objects("anna")
    await site.put("anna", role="admin")
    row = await site.reaches("anna", "conflict")
    assert "role is view, not admin" in row.reason
    await site.remove("anna")
    await seen(site, "anna")
    assert await site.objects("anna") == before
    assert not site.people.book.items()


async def test_a_user_of_the_tool_with_the_same_values_is_taken_over(site: Site) -> None:
    await site.world.run(Action.ADD, "anna", role="view")
    certificate = site.kubeconfig("anna").read_bytes()
    await site.put("anna", role="view")
    row = await site.reaches("anna", "ready")
    await site.tells("User anna in namespace anna-restricted: taken over as it was")
    await until(lambda: site.rows("anna")[0].owner == "tree", "it is the tree's")
    assert row.expires
    assert site.kubeconfig("anna").read_bytes() == certificate
    with pytest.raises(errors.Invalid, match="is kept by a head"):
        await site.world.run(Action.MODIFY, "anna", role="edit")
    with pytest.raises(errors.Invalid, match="is kept by a head"):
        await site.world.run(Action.REMOVE, "anna")
    assert "anna" in await site.world.run(Action.LIST)
    assert "Renewed" in await site.world.run(Action.RENEW, "anna")


async def test_what_somebody_changes_by_hand_is_put_back_and_told(site: Site) -> None:
    await site.put("john")
    await site.reaches("john", "ready")
    (obj,) = await site.objects("john")
    patch = {"spec": {"role": "cluster-admin"}}
    await site.client.patch(grants.USERS, obj["metadata"]["name"], patch, permissions.NAMESPACE)
    await seen(site, "john")
    await site.tells("was changed to what the tree says: role is cluster-admin, not edit")
    (obj,) = await site.objects("john")
    assert obj["spec"]["role"] == "edit"


async def test_a_removed_user_with_running_pods_waits_for_them(site: Site) -> None:
    await site.client.create(NAMESPACES, {"metadata": {"name": "john-restricted"}})
    await site.put("john")
    await site.reaches("john", "ready")
    pod = {"metadata": {"name": "work"}, "spec": {"containers": [{"name": "a", "image": "none"}]}}
    await site.client.create(PODS.raw(), pod, "john-restricted")
    await site.remove("john")
    row = await site.reaches("john", "removing")
    await site.tells(
        "pods run: john-restricted/work; delete them, or run cm-kubernetes-setup --remove-user john --force"
    )
    assert row.owner == "tree"
    (obj,) = await site.objects("john")
    assert grants.owner_of(obj) == grants.LEAVING
    assert "Removed user john" in await site.world.run(Action.REMOVE, "john", force=True)


async def test_a_removed_user_with_bindings_of_others_is_told_once_and_waited_for(site: Site) -> None:
    """The permission manager holds the object as long as somebody's binding gives the user rights."""
    await site.put("john")
    await site.reaches("john", "ready")
    (obj,) = await site.objects("john")
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    await site.client.patch(grants.USERS, obj["metadata"]["name"], held, permissions.NAMESPACE)
    await site.remove("john")

    async def leaving() -> RawObject | None:
        (found,) = await site.objects("john")
        return found if found["metadata"].get("deletionTimestamp") else None

    found = await until(leaving, "the object is being deleted")
    assert found is not None
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": permissions.STILL_BOUND,
        "message": "RoleBinding dev/mine still gives john rights: delete it",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": found["metadata"]["generation"],
    }
    status = {"status": {"conditions": [condition], "observedGeneration": found["metadata"]["generation"]}}
    await site.client.patch(grants.USERS, obj["metadata"]["name"], status, permissions.NAMESPACE, subresource="status")
    await site.tells("RoleBinding dev/mine still gives john rights: delete it")
    assert (await site.reaches("john", "removing")).owner == "tree"
    assert sum("has no rights" in text for text in site.texts()) == 1
    free = {"metadata": {"finalizers": None}}
    await site.client.patch(grants.USERS, obj["metadata"]["name"], free, permissions.NAMESPACE)


async def test_another_cluster_behind_the_name_loses_nothing(site: Site) -> None:
    await site.put("john")
    await site.reaches("john", "ready")
    await site.stop()
    (name,) = site.people.book.items()
    record = site.people.book.items()[name]
    other = Person("default", "john", "another-cluster", record.objects)
    await books.write(site.store, [site.people.book.change(name, other)])
    await site.remove("john")
    await site.start()
    await until(lambda: site.rows("john"), "the cluster is looked at")
    await until(lambda: not site.people.book.items(), "the record is forgotten")
    assert len(await site.objects("john")) == 1


async def test_many_users_at_once(site: Site) -> None:
    names = [f"user{number:02d}" for number in range(30)]
    site.accounts.names = tuple(names)
    session = site.head.session()
    for name in names:
        session.add(USERS, name)
        session.set((*USERS, name), "managekubeconfig", "no")
    await commit_session(site.head, session)
    for name in names:
        await site.reaches(name, "ready")
    assert len(await site.objects()) == 30
    assert not site.kubeconfig("user00").exists()
