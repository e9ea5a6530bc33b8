"""The actions of user management on an API server, with somebody in the permission manager's place."""

from __future__ import annotations

import asyncio
import json
import stat
from datetime import UTC, datetime

import pytest
import yaml
from tests.setup.people.worlds import World, stand_in

from bedplate.api import permissions
from bedplate.api.resources import NAMESPACES, PODS
from bedplate.core import errors
from bedplate.people import certificates, grants
from bedplate.people.certificates import Authority
from bedplate.setup.people.request import Action

POD = {"metadata": {"name": "busy"}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}


def kubeconfig(world: World, user: str = "john") -> dict:  # type: ignore[type-arg]
    account = world.people.find(user)
    assert account is not None
    document = yaml.safe_load((account.home / ".kube/config").read_text())
    assert isinstance(document, dict)
    return document


async def test_adding_a_user_leads_to_an_object_and_a_kubeconfig(world: World) -> None:
    printed = await world.run(Action.ADD, "john")
    (obj,) = (await world.objects())[grants.USERS.plural]
    assert obj["metadata"]["name"] == permissions.release_name("john", "john-restricted")
    path = world.people.folder / "john/.kube/config"
    assert str(path) in printed and "role edit in namespace john-restricted" in printed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    document = kubeconfig(world)
    assert document["current-context"] == "john@kubernetes"


async def test_the_certificate_is_for_the_user_and_lasts_a_year(world: World) -> None:
    await world.run(Action.ADD, "john")
    import base64

    (user,) = kubeconfig(world)["users"]
    pem = base64.b64decode(user["user"]["client-certificate-data"])
    assert certificates.user_of(pem) == "john"
    assert 363 <= (certificates.expiry_of(pem) - datetime.now(UTC)).days <= 365
    shown = await world.run(Action.GET, "john")
    assert f"Certificate expires: {certificates.expiry_of(pem):%Y-%m-%d}" in shown


async def test_an_authority_that_the_server_does_not_trust_is_refused(world: World) -> None:
    from datetime import timedelta

    from bedplate.serving import issuing

    foreign = issuing.Authority.create("foreign", datetime.now(UTC), timedelta(days=1)).pair
    foreign.write(world.people.folder, "foreign")
    world.ca = (world.people.folder / "foreign.crt", world.people.folder / "foreign.key")
    with pytest.raises(errors.Terminal, match=r"was added, but has no certificate yet.*does not accept"):
        await world.run(Action.ADD, "john", timeout_s=1)
    assert not (world.people.folder / "john/.kube/config").exists()


async def test_nobody_signs_and_no_authority_is_given(world: World) -> None:
    world.ca = None
    with pytest.raises(errors.Terminal, match="nobody signed"):
        await world.run(Action.ADD, "john", timeout_s=1)
    assert (await world.client.list(certificates.REQUESTS)).items == []


async def test_a_second_call_repairs_what_an_interrupted_one_left(world: World) -> None:
    authority, world.ca = world.ca, None
    with pytest.raises(errors.Terminal):
        await world.run(Action.ADD, "john", timeout_s=1)
    world.ca = authority
    with pytest.raises(errors.AlreadyExists):
        await world.run(Action.ADD, "john")
    await world.run(Action.RENEW, "john")
    assert kubeconfig(world)["current-context"] == "john@kubernetes"


async def test_no_manager_is_an_error_that_says_so_and_leaves_nothing(bare_world: World) -> None:
    with pytest.raises(errors.Unavailable, match="no permission manager answered"):
        await bare_world.run(Action.ADD, "john", timeout_s=0.5)
    assert not any((await bare_world.objects()).values())
    assert not (bare_world.people.folder / "john/.kube").exists()


async def test_what_the_manager_refuses_is_taken_back(bare_world: World) -> None:
    async with stand_in(bare_world.client, lambda obj: "the quota of users is exhausted"):
        with pytest.raises(errors.Terminal, match="quota of users"):
            await bare_world.run(Action.ADD, "john", operators="spark-operator")
    assert not any((await bare_world.objects()).values())


async def test_a_refused_change_leaves_the_user_as_before(bare_world: World) -> None:
    async with stand_in(bare_world.client, lambda obj: "no" if obj["spec"].get("role") == "admin" else ""):
        await bare_world.run(Action.ADD, "john", user_paths="/home/john")
        before = await bare_world.objects()
        with pytest.raises(errors.Terminal, match="refused"):
            await bare_world.run(Action.MODIFY, "john", role="admin", user_paths="/x", operators="spark-operator")
        after = await bare_world.objects()
    assert {key: [obj["spec"] for obj in value] for key, value in before.items()} == {
        key: [obj["spec"] for obj in value] for key, value in after.items()
    }


async def test_two_calls_at_once_add_one_user(world: World) -> None:
    results = await asyncio.gather(world.run(Action.ADD, "john"), world.run(Action.ADD, "john"), return_exceptions=True)
    assert sum(isinstance(result, str) for result in results) == 1
    (failure,) = [result for result in results if not isinstance(result, str)]
    assert isinstance(failure, errors.AlreadyExists) and "--" in failure.hint, "it says what to do next"
    assert len((await world.objects())[grants.USERS.plural]) == 1


async def test_a_hostile_home_stops_everything_before_the_first_write(world: World) -> None:
    account = world.people.find("john")
    assert account is not None
    (account.home / ".kube").symlink_to("/")
    with pytest.raises(errors.Invalid, match="link is not followed"):
        await world.run(Action.ADD, "john")
    (account.home / ".kube").unlink()
    (account.home / ".kube").mkdir()
    (account.home / ".kube/config").write_text("not: [a kubeconfig")
    with pytest.raises(errors.Invalid, match="not a kubeconfig"):
        await world.run(Action.ADD, "john")
    assert not any((await world.objects()).values())


async def test_a_name_that_kubernetes_cannot_have_works_throughout(world: World) -> None:
    await world.run(Action.ADD, "John.Doe", operators="spark-operator")
    (entry,) = json.loads(await world.run(Action.LIST, as_json=True))
    assert (entry["user"], entry["operators"]) == ("John.Doe", ["spark-operator"])
    await world.run(Action.REMOVE, "John.Doe")
    assert json.loads(await world.run(Action.LIST, as_json=True)) == []


async def test_a_user_whose_account_is_gone_can_be_removed(world: World) -> None:
    await world.run(Action.ADD, "john")
    world.people.names = ()
    await world.run(Action.REMOVE, "john")
    assert not any((await world.objects()).values())


async def test_pods_that_ended_or_are_of_a_shared_namespace_do_not_keep_a_user(world: World) -> None:
    await world.client.create(NAMESPACES, {"metadata": {"name": "dev"}})
    for user in ("john", "anna"):
        await world.run(Action.ADD, user)
        await world.run(Action.MODIFY, user, namespace="dev", add_to_namespace=True)
    await world.client.create(PODS, POD, "dev")
    await world.run(Action.REMOVE, "john")
    assert {entry["user"] for entry in json.loads(await world.run(Action.LIST, as_json=True))} == {"anna"}


async def test_renewal_replaces_the_certificate_and_keeps_the_rest(world: World) -> None:
    await world.run(Action.ADD, "john")
    first = kubeconfig(world)
    printed = await world.run(Action.RENEW, "john", days=30)
    second = kubeconfig(world)
    assert first["users"][0]["user"] != second["users"][0]["user"]
    assert first["contexts"] == second["contexts"]
    (entry,) = json.loads(await world.run(Action.GET, "john", as_json=True))
    assert entry["certificate_expires"] in printed


async def test_the_authority_of_this_machine_is_used_where_it_is_the_clusters(world: World) -> None:
    assert world.ca is not None
    pki = world.people.folder / "pki"
    (pki / "prod").mkdir(parents=True)
    for path in world.ca:
        (pki / "prod" / path.name).write_bytes(path.read_bytes())
    trusted = world.ca[0].read_bytes()
    found = certificates.find_authority(None, trusted, "prod", pki)
    assert found == Authority(pki / "prod/ca.crt", pki / "prod/ca.key", is_given=False)
    assert certificates.find_authority(None, trusted, "other", pki) is None
    assert certificates.find_authority(None, b"another", "prod", pki) is None


async def test_without_the_custom_kinds_the_tool_says_how_to_install_them(empty_world: World) -> None:
    with pytest.raises(errors.NotFound, match="not installed"):
        await empty_world.run(Action.LIST)


async def test_restoring_twice_writes_nothing_the_second_time(world: World) -> None:
    await world.run(Action.ADD, "john", operators="spark-operator")
    file = world.people.folder / "backup.yaml"
    await world.run(Action.BACKUP, file=file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await world.run(Action.MODIFY, "john", role="view", operators="")
    assert "Restored 2" in await world.run(Action.RESTORE, file=file)
    assert "Restored 0" in await world.run(Action.RESTORE, file=file)
    (entry,) = json.loads(await world.run(Action.LIST, as_json=True))
    assert (entry["role"], entry["operators"]) == ("edit", ["spark-operator"])


async def test_a_home_with_a_link_in_it_is_refused_with_one_message(world: World) -> None:
    home = world.people.folder / "john"
    home.mkdir()
    (home / ".kube").symlink_to("/var")
    with pytest.raises(errors.Invalid, match="a link is not followed") as refused:
        await world.run(Action.ADD, "john")
    assert refused.value.__cause__ is not refused.value
    assert "john" in errors.describe(refused.value)
    assert all(not found for found in (await world.objects()).values())
