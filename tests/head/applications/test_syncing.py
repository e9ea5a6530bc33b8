"""Applications of the tree in a cluster: applied, kept so, pruned and deleted; on the embedded and the real server."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

import msgspec
import pytest
from tests.head.applications.conftest import Site, config_map, joined
from tests.head.committing import commit_session
from tests.waiting import until

from bedplate.api.resources import CONFIG_MAPS, CRDS, NAMESPACES, custom
from bedplate.core import errors
from bedplate.head import book as books
from bedplate.head.applications.applying import LABEL
from bedplate.kube import Client


async def test_item_182_a_new_application_is_applied_and_told(site: Site, namespace: str) -> None:
    await site.put("web", config_map("a", namespace))
    state = await site.reaches("web", "applied")
    assert (state.objects, state.failures, state.warnings) == (1, [], [])
    found = await site.find("a", namespace)
    assert found is not None and found["metadata"]["labels"][LABEL] == f"{namespace}.web"
    await site.tells(f"Application {namespace}/web was applied: 1 object")


async def test_item_183_variables_are_replaced_in_the_cluster_and_unknown_ones_told(site: Site, namespace: str) -> None:
    await site.put("web", config_map("a", namespace, x="$HOST:$Port", y="$nobody $$x"), HOST="h", Port="1")
    state = await site.reaches("web", "applied")
    assert state.warnings == ["$nobody has no value and was left unchanged"]
    assert await at_once(site.there("a", namespace, x="h:1", y="$nobody $x"))
    await site.tells("$nobody has no value")


async def test_item_184_disabling_deletes_the_objects_and_enabling_brings_them_back(site: Site, namespace: str) -> None:
    await site.put("web", config_map("a", namespace))
    await site.put("db", config_map("b", namespace))
    await site.reaches("web", "applied")
    await site.reaches("db", "applied")
    await site.put("web", config_map("a", namespace), enabled=False)
    await site.reaches("web", "disabled")
    await until(site.gone("a", namespace))
    assert site.state("db").state == "applied" and await site.find("b", namespace)
    await site.set_group(enabled=False)
    await until(site.gone("b", namespace))
    await site.set_group(enabled=True)
    await until(site.there("b", namespace))
    assert await site.find("a", namespace) is None, "the application itself is still disabled"


async def test_item_185_what_leaves_the_manifests_is_deleted(site: Site, namespace: str) -> None:
    await site.put("web", joined(config_map("a", namespace), config_map("b", namespace)))
    await until(site.there("b", namespace))
    await site.reaches("web", "applied")
    await site.put("web", config_map("a", namespace, a="2"))
    await until(site.gone("b", namespace))
    await until(site.there("a", namespace, a="2"))
    await until(lambda: site.state("web").objects == 1)


async def test_item_185_an_object_that_moves_to_another_application_is_never_deleted(
    site: Site, namespace: str
) -> None:
    await site.put("web", joined(config_map("a", namespace), config_map("b", namespace)))
    await site.reaches("web", "applied")
    uid = (await site.client.get(CONFIG_MAPS, "b", namespace)).metadata.uid
    session = site.head.session()
    base = ("kubernetes", "default", "app_groups", site.group, "applications")
    session.set((*base, "web"), "config", config_map("a", namespace))
    await commit_session(site.head, session)
    await until(site.gone("b", namespace))
    await site.put("web", joined(config_map("a", namespace), config_map("b", namespace)))
    await until(site.there("b", namespace))
    uid = (await site.client.get(CONFIG_MAPS, "b", namespace)).metadata.uid
    # Both in one commit: handed over.
    session = site.head.session()
    session.set((*base, "web"), "config", config_map("a", namespace))
    web = session.tree.get((*base, "web"))
    session.put((*base, "zoo"), web.with_value("config", config_map("b", namespace)))
    await commit_session(site.head, session)
    await site.reaches("zoo", "applied")
    await until(lambda: site.state("web").objects == 1)
    assert (await site.client.get(CONFIG_MAPS, "b", namespace)).metadata.uid == uid


async def test_item_186_what_others_delete_or_change_is_repaired_at_once(site: Site, namespace: str) -> None:
    await site.put("web", config_map("a", namespace, x="1"))
    await site.reaches("web", "applied")
    await site.client.delete(CONFIG_MAPS, "a", namespace)
    await until(site.there("a", namespace, x="1"))
    await site.client.patch(CONFIG_MAPS, "a", {"data": {"x": "2", "theirs": "3"}}, namespace)
    await until(site.there("a", namespace, x="1", theirs="3"))
    await site.tells("was changed by others and repaired")


async def test_one_broken_application_stops_no_other_and_is_told_once(site: Site, namespace: str) -> None:
    broken = joined(config_map("a", namespace), config_map("A_B", namespace), config_map("c", namespace))
    await site.put("broken", broken)
    await site.put("web", config_map("d", namespace))
    state = await site.reaches("broken", "failed")
    assert [failure.object for failure in state.failures] == [f"ConfigMap {namespace}/A_B"]
    assert "RFC 1123" in state.failures[0].reason
    await site.reaches("web", "applied")
    await until(site.there("c", namespace))
    # It is tried again without being told again.
    await until(lambda: site.applications.book.items() and site.state("broken").state == "failed")
    failed = f"Application {namespace}/broken failed"
    await site.tells(failed)
    assert len([text for text in site.texts() if text.startswith(failed)]) == 1
    await site.put("broken", config_map("a", namespace))
    state = await site.reaches("broken", "applied")
    assert state.failures == []
    await until(site.gone("c", namespace))


async def test_nothing_is_pruned_while_an_object_fails(site: Site, namespace: str) -> None:
    await site.put("web", joined(config_map("a", namespace), config_map("b", namespace)))
    await site.reaches("web", "applied")
    await site.put("web", joined(config_map("a", namespace), config_map("A_B", namespace)))
    await site.reaches("web", "failed")
    assert await site.find("b", namespace) is not None
    await site.put("web", config_map("a", namespace))
    await until(site.gone("b", namespace))


async def test_an_object_of_two_applications_belongs_to_the_first(site: Site, namespace: str) -> None:
    await site.put("one", config_map("a", namespace, x="1"))
    await site.put("two", joined(config_map("a", namespace, x="2"), config_map("b", namespace)))
    state = await site.reaches("two", "failed")
    assert state.failures[0].reason == f"it is also in application {namespace}/one, which comes first"
    await until(site.there("b", namespace))
    # Neither of them waits for the other.
    await site.reaches("one", "applied")
    assert await at_once(site.there("a", namespace, x="1"))


async def test_an_unknown_field_is_refused_and_named(site: Site, namespace: str) -> None:
    await site.put("web", config_map("a", namespace) + "dta: {}\n")
    state = await site.reaches("web", "failed")
    assert "dta" in state.failures[0].reason


async def test_a_restart_knows_what_was_applied(site: Site, namespace: str) -> None:
    await site.put("web", joined(config_map("a", namespace), config_map("b", namespace)))
    await site.reaches("web", "applied")
    since = site.state("web").since
    await site.stop()
    await site.put("web", config_map("a", namespace))
    await site.client.patch(CONFIG_MAPS, "a", {"data": {"a": "theirs"}}, namespace)
    assert await site.find("b", namespace) is not None
    await site.start()
    await until(site.gone("b", namespace))
    await until(site.there("a", namespace, a="1"))
    await until(lambda: site.state("web").objects == 1)
    assert site.state("web").since == since


async def test_an_application_that_was_removed_is_deleted_also_after_a_restart(site: Site, namespace: str) -> None:
    await site.put("web", config_map("a", namespace))
    await site.reaches("web", "applied")
    await site.stop()
    session = site.head.session()
    session.put(("kubernetes", "default", "app_groups", site.group), None)
    await commit_session(site.head, session)
    await site.start()
    await until(site.gone("a", namespace))
    await until(lambda: not site.applications.book.items())
    await site.tells(f"Application {namespace}/web was removed from the cluster")


async def test_what_is_no_longer_the_applied_one_is_kept(site: Site, namespace: str) -> None:
    await site.put("web", joined(config_map("a", namespace), config_map("b", namespace)))
    await site.reaches("web", "applied")
    await site.stop()
    await site.client.delete(CONFIG_MAPS, "b", namespace)
    await site.client.create(CONFIG_MAPS, {"metadata": {"name": "b"}, "data": {"x": "theirs"}}, namespace)
    await site.put("web", config_map("a", namespace))
    await site.start()
    await site.tells("b was kept: it is no longer the one")
    assert await at_once(site.there("b", namespace, x="theirs"))


async def test_the_removal_of_a_cluster_deletes_nothing_in_it(site: Site, namespace: str) -> None:
    await site.put("web", config_map("a", namespace))
    await site.reaches("web", "applied")
    session = site.head.session()
    for name in ("kube-default-master", "kube-default-worker"):
        session.put(("configurationoverlay", name), None)
    session.put(("kubernetes", "default"), None)
    await commit_session(site.head, session)
    await until(lambda: not site.applications.book.items())
    await site.tells("1 objects of its applications were left")
    assert await site.find("a", namespace) is not None


async def test_a_record_of_another_cluster_of_that_name_deletes_nothing(site: Site, namespace: str) -> None:
    await site.put("web", joined(config_map("a", namespace), config_map("b", namespace)))
    await site.reaches("web", "applied")
    await site.stop()
    (name,) = site.applications.book.items()
    other = msgspec.structs.replace(site.applications.book.items()[name], place="another")
    await books.write(site.store, [site.applications.book.change(name, other)])
    await site.put("web", config_map("a", namespace))
    await site.start()
    await site.tells("the cluster is another one than before")
    await site.reaches("web", "applied")
    assert await site.find("b", namespace) is not None


async def at_once(question: Callable[[], object]) -> bool:
    """Whether something holds now, without waiting for it."""
    answer = question()
    return bool(await answer if inspect.isawaitable(answer) else answer)


NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n"


async def exists(client: Client, name: str) -> bool:
    try:
        return not (await client.get(NAMESPACES, name)).metadata.is_deleting
    except errors.NotFound:
        return False


async def test_namespaces_come_first_and_go_unless_others_have_something_in_them(
    site: Site, namespace: str, client: Client
) -> None:
    own, shared = f"{namespace}-own", f"{namespace}-shared"
    text = joined(config_map("a", own), config_map("b", shared), NAMESPACE % own, NAMESPACE % shared)
    await site.put("web", text)
    await site.reaches("web", "applied")
    await client.create(CONFIG_MAPS, {"metadata": {"name": "theirs"}}, shared)
    await site.put("web", text, enabled=False)
    await until(site.gone("b", shared))
    await site.tells(f"Namespace {shared} was kept: it holds ConfigMap theirs")

    async def is_gone() -> bool:
        return not await exists(client, own)

    await until(is_gone)
    assert await exists(client, shared)
    await client.delete(NAMESPACES, shared)


def definition(name: str) -> str:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": f"{name}s", "singular": name, "kind": name.capitalize()}
    spec = {"group": "bedplate.test", "scope": "Namespaced", "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return json.dumps({**head, "metadata": {"name": f"{name}s.bedplate.test"}, "spec": spec}) + "\n"


def resource(name: str, namespace: str) -> str:
    metadata = {"name": "a", "namespace": namespace}
    head = {"apiVersion": "bedplate.test/v1", "kind": name.capitalize()}
    return json.dumps({**head, "metadata": metadata, "spec": {"size": 3}}) + "\n"


@pytest.mark.parametrize("has_more", [False, True])
async def test_definitions_are_in_force_before_their_objects_and_stay_while_others_have_some(
    site: Site, namespace: str, client: Client, has_more: bool
) -> None:
    name = "w" + namespace.removeprefix("test-")
    own = resource(name, namespace)
    text = joined(own, definition(name))
    await site.put("web", text)
    state = await site.reaches("web", "applied")
    assert state.objects == 2
    if has_more:
        body = {"apiVersion": "bedplate.test/v1", "kind": name.capitalize(), "metadata": {"name": "theirs"}}
        await client.create(custom("bedplate.test", "v1", f"{name}s", name.capitalize(), True), body, namespace)
    await site.put("web", text, enabled=False)
    await site.reaches("web", "disabled")
    if has_more:
        await site.tells("was kept: there are objects of its kind")
        await client.get(CRDS, f"{name}s.bedplate.test")
        await client.delete(CRDS, f"{name}s.bedplate.test")
    else:
        with pytest.raises(errors.NotFound):
            await client.get(CRDS, f"{name}s.bedplate.test")


async def test_a_kind_that_is_not_served_is_told_and_applied_once_it_is(
    site: Site, namespace: str, client: Client
) -> None:
    name = "x" + namespace.removeprefix("test-")
    own = resource(name, namespace)
    await site.put("a-user", own)
    state = await site.reaches("a-user", "failed")
    assert "does not serve" in state.failures[0].reason
    await site.put("definitions", joined(definition(name)))
    await site.reaches("a-user", "applied")
    await site.set_group(enabled=False)
    await site.reaches("definitions", "disabled")
    await site.reaches("a-user", "disabled")
