"""Users of a cluster, from the command that adds them to the one that removes them.

On a real and on the embedded API server, with the permission manager running beside it. Every test has users of its
own, so that none depends on another.
"""

from __future__ import annotations

import base64
import json
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from tests import programs
from tests.setup.people.managed import Place, managed_cluster
from tests.setup.people.worlds import People, World
from tests.waiting import until

from bedplate.api import permissions
from bedplate.api.resources import (
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    SUBJECT_ACCESS_REVIEWS,
    RawObject,
    ResourceRef,
)
from bedplate.core import errors
from bedplate.kube import Client, config
from bedplate.people import certificates, grants
from bedplate.setup.people.request import Action

HOME = "/home/john"


@pytest.fixture(scope="module", params=["real", "embedded"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with managed_cluster(request.param, tmp_path_factory.mktemp("users")) as running:
        yield running


@pytest.fixture
async def world(place: Place) -> AsyncIterator[World]:
    names = tuple(f"{name}{number}" for name in ("john", "anna") for number in range(133, 155))
    async with Client(config.load(place.server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        yield World(place.server, client, People(place.folder, names), place.ca)


@asynccontextmanager
async def acting_as(world: World, user: str) -> AsyncIterator[Client]:
    """A client with the user's own kubeconfig."""
    account = world.people.find(user)
    assert account is not None
    async with Client(config.load(account.home / ".kube/config", environ={}).with_rate(-1, 1)) as client:
        yield client


def pod(*volumes: RawObject, context: RawObject | None = None, name: str = "web") -> RawObject:
    spec = {"containers": [{"name": "main", "image": "busybox"}], "volumes": list(volumes)}
    return {"metadata": {"name": name}, "spec": {**spec, **({"securityContext": context} if context else {})}}


def host_path(path: str) -> RawObject:
    return {"name": "host", "hostPath": {"path": path}}


async def is_there(client: Client, ref: ResourceRef[Any], name: str, namespace: str | None = None) -> bool:
    try:
        await client.get(ref.raw(), name, namespace)
    except errors.NotFound:
        return False
    return True


async def may(client: Client, user: str, verb: str, resource: str, namespace: str = "", group: str = "") -> bool:
    about = {"verb": verb, "resource": resource, "namespace": namespace, "group": group}
    question = {"spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": about}}
    return (await client.create(SUBJECT_ACCESS_REVIEWS, question)).status.allowed


async def refusal(client: Client, body: RawObject, namespace: str) -> str:
    """Why a pod is refused; "" where it is not."""
    try:
        await client.create(PODS, body, namespace, dry_run=True)
    except errors.Denied as err:
        return str(err)
    return ""


async def test_item_133_an_unknown_account_is_refused(world: World) -> None:
    before = await world.objects()
    for user in ("nobody-knows-me", "..", "system:admin", "-x", ""):
        with pytest.raises((errors.NotFound, errors.Invalid)):
            await world.run(Action.ADD, user)
    assert await world.objects() == before


async def test_item_134_a_user_consists_of_the_documented_objects(world: World) -> None:
    await world.run(Action.ADD, "john134")
    (obj,) = [obj for obj in (await world.objects())[grants.USERS.plural] if obj["spec"]["username"] == "john134"]
    user, _, suffix = obj["metadata"]["name"].rpartition("-")
    assert (user, len(suffix), suffix.isalnum(), suffix.islower() or suffix.isdigit()) == ("john134", 7, True, True)
    assert obj["metadata"]["labels"] == {"namespace": "john134-restricted", "username": "john134"}
    assert await is_there(world.client, NAMESPACES, "john134-restricted")
    assert await is_there(world.client, SERVICE_ACCOUNTS, "john134", "john134-restricted")
    for ref in (permissions.ROLES_REF, permissions.ROLE_BINDINGS):
        assert await is_there(world.client, ref, "john134-restricted", "john134-restricted")
    for ref in (permissions.CLUSTER_ROLES, permissions.CLUSTER_ROLE_BINDINGS):
        assert await is_there(world.client, ref, "john134-nodes")


async def test_item_135_the_kubeconfig_works_in_the_namespace_and_nowhere_else(world: World) -> None:
    for user in ("john135", "anna135"):
        await world.run(Action.ADD, user)
    async with acting_as(world, "john135") as john:
        assert john.config.namespace == "john135-restricted"
        await john.list(PODS, "john135-restricted")
        await john.list(NODES)
        for namespace in ("anna135-restricted", "default", "kube-system"):
            with pytest.raises(errors.Denied):
                await john.list(PODS, namespace)
        with pytest.raises(errors.Denied):
            await john.list(NAMESPACES)


async def test_item_136_the_kubeconfig_is_the_users_alone(world: World) -> None:
    await world.run(Action.ADD, "john136")
    account = world.people.find("john136")
    assert account is not None
    about = (account.home / ".kube/config").stat()
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o600, account.uid)


ROLES = {
    "view": {"get pods": True, "create pods": False, "get secrets": False, "create rolebindings": False},
    "edit": {"get pods": True, "create pods": True, "get secrets": True, "create rolebindings": False},
    "admin": {"get pods": True, "create pods": True, "get secrets": True, "create rolebindings": True},
    "cluster-admin": {"get pods": True, "create pods": True, "get secrets": True, "create rolebindings": True},
}


async def test_item_137_the_roles_give_the_expected_rights(world: World) -> None:
    await world.run(Action.ADD, "john137")
    for role, expected in ROLES.items():
        await world.run(Action.MODIFY, "john137", role=role)
        for wish, is_allowed in expected.items():
            verb, resource = wish.split()
            group = permissions._RBAC if resource == "rolebindings" else ""

            async def agrees() -> bool:
                return (
                    await may(world.client, "john137", verb, resource, "john137-restricted", group) is is_allowed  # noqa: B023
                )

            await until(agrees, f"{role} and {wish} agree")
        is_everywhere = await may(world.client, "john137", "create", "pods", "default")
        assert is_everywhere is (role == "cluster-admin")


async def test_item_138_host_paths_outside_the_home_are_denied(world: World) -> None:
    await world.run(Action.ADD, "john138")
    account = world.people.find("john138")
    assert account is not None
    (obj,) = [obj for obj in (await world.objects())[grants.USERS.plural] if obj["spec"]["username"] == "john138"]
    assert obj["spec"]["user_paths"] == [str(account.home)]
    async with acting_as(world, "john138") as john:
        for path in ("/etc", f"{account.home}x", f"{account.home}/../other", "/"):
            message = await refusal(john, pod(host_path(path)), "john138-restricted")
            assert f"{obj['metadata']['name']}-limit-hostpath-vols" in message or ".." in message, path
        assert await refusal(john, pod(host_path(f"{account.home}/data")), "john138-restricted") == ""


async def test_item_139_pods_get_the_ids_of_the_user(world: World) -> None:
    await world.run(Action.ADD, "john139", runas_uid="1390", runas_gids="1391,1392", user_paths=HOME)
    async with acting_as(world, "john139") as john:
        created = await john.create(PODS.raw(), pod(), "john139-restricted", dry_run=True)
        context = created["spec"]["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == (1390, 1391)
        assert set(context["supplementalGroups"]) >= {1392}
        foreign = pod(host_path(HOME), context={"runAsUser": 7})
        assert "runAsUser" in await refusal(john, foreign, "john139-restricted")


async def test_item_140_with_all_uids_root_runs_without_host_paths_only(world: World) -> None:
    await world.run(Action.ADD, "john140", allow_all_uids=True, runas_uid="1400", runas_gids="1400", user_paths=HOME)
    async with acting_as(world, "john140") as john:
        root = {"runAsUser": 0}
        assert await refusal(john, pod(context=root), "john140-restricted") == ""
        assert await refusal(john, pod(host_path(HOME), context=root), "john140-restricted")
        assert await refusal(john, pod(host_path(HOME)), "john140-restricted") == ""


async def test_item_141_ids_can_be_chosen(world: World) -> None:
    await world.run(Action.ADD, "john141", runas_uid="1410", runas_gids="1411,1412")
    (entry,) = json.loads(await world.run(Action.GET, "john141", as_json=True))
    assert (entry["uid"], entry["gids"]) == (1410, [1411, 1412])
    async with acting_as(world, "john141") as john:
        created = await john.create(PODS.raw(), pod(), "john141-restricted", dry_run=True)
    assert created["spec"]["securityContext"]["runAsUser"] == 1410


async def test_item_142_changes_replace_and_namespaces_come_and_go(world: World) -> None:
    await world.run(Action.ADD, "john142", operators="spark-operator")
    changed = {"user_paths": f"{HOME},/scratch", "operators": "postgresql-operator,cm-jupyter-kernel-operator"}
    await world.run(Action.MODIFY, "john142", namespace="john142-restricted", **changed)
    (entry,) = json.loads(await world.run(Action.GET, "john142", as_json=True))
    assert entry["paths"] == [HOME, "/scratch"]
    assert sorted(entry["operators"]) == ["cm-jupyter-kernel-operator", "postgresql-operator"]
    await world.run(Action.MODIFY, "john142", operators="")
    (entry,) = json.loads(await world.run(Action.GET, "john142", as_json=True))
    assert entry["operators"] == []

    with pytest.raises(errors.Invalid, match="does not exist"):
        await world.run(Action.MODIFY, "john142", namespace="dev142", add_to_namespace=True)
    await world.client.create(NAMESPACES, {"metadata": {"name": "dev142"}})
    await world.run(Action.MODIFY, "john142", namespace="dev142", add_to_namespace=True)
    async with acting_as(world, "john142") as john:
        await john.list(PODS, "dev142")
        await world.run(Action.MODIFY, "john142", namespace="dev142", remove_from_namespace=True)
        with pytest.raises(errors.Denied):
            await john.list(PODS, "dev142")
        await john.list(PODS, "john142-restricted")
    assert await is_there(world.client, NAMESPACES, "dev142")


async def test_item_143_users_are_listed_with_all_their_settings(world: World) -> None:
    await world.run(
        Action.ADD, "john143", runas_uid="143", runas_gids="144,145", user_paths="/a,/b", operators="spark-operator"
    )
    lines = (await world.run(Action.LIST)).splitlines()
    assert lines[0].split() == ["USER", "NAMESPACE", "ROLE", "UID", "GIDS", "PATHS", "ALL-UIDS", "OPERATORS"]
    (row,) = [line.split() for line in lines if line.startswith("john143 ")]
    assert row == ["john143", "john143-restricted", "edit", "143", "144,145", "/a,/b", "no", "spark-operator"]
    listed = json.loads(await world.run(Action.LIST, as_json=True))
    assert isinstance(listed, list)
    (entry,) = [entry for entry in listed if entry["user"] == "john143"]
    assert entry["certificate_expires"] in await world.run(Action.GET, "john143")
    with pytest.raises(errors.NotFound):
        await world.run(Action.GET, "john-unknown")


async def test_item_144_nothing_is_left_of_a_removed_user(world: World) -> None:
    await world.run(Action.ADD, "john144", operators="spark-operator")
    account = world.people.find("john144")
    assert account is not None
    kept = account.home / "kept"
    kept.write_bytes((account.home / ".kube/config").read_bytes())
    await world.client.create(PODS, pod(), "john144-restricted")
    with pytest.raises(errors.Invalid, match="while pods run: john144-restricted/web"):
        await world.run(Action.REMOVE, "john144")
    await world.run(Action.REMOVE, "john144", force=True)
    objects = await world.objects()
    assert not [obj for each in objects.values() for obj in each if obj["spec"]["username"] == "john144"]
    for ref in (permissions.CLUSTER_ROLES, permissions.CLUSTER_ROLE_BINDINGS):
        assert not await is_there(world.client, ref, "john144-nodes")

    assert not await is_there(world.client, NAMESPACES, "john144-restricted")
    assert not (account.home / ".kube/config").exists()
    async with Client(config.load(kept, environ={}).with_rate(-1, 1)) as john:
        for attempt in (john.list(PODS, "john144-restricted"), john.list(NODES), john.list(PODS, "default")):
            with pytest.raises(errors.Denied):
                await attempt


async def test_item_144_rights_that_the_user_gave_themselves_are_not_passed_over(world: World) -> None:
    """Who administers a namespace may bind roles there. The tool must not say that nothing is left."""
    await world.run(Action.ADD, "anna144")
    await world.client.create(NAMESPACES, {"metadata": {"name": "dev144"}})
    await world.run(Action.MODIFY, "anna144", namespace="dev144", add_to_namespace=True, role="admin")
    binding = {
        "metadata": {"name": "mine"},
        "subjects": [{"kind": "User", "apiGroup": permissions._RBAC, "name": "anna144"}],
        "roleRef": {"apiGroup": permissions._RBAC, "kind": "ClusterRole", "name": "edit"},
    }
    async with acting_as(world, "anna144") as anna:
        await anna.create(permissions.ROLE_BINDINGS.raw(), binding, "dev144")
        revoke: dict[str, Any] = {"namespace": "dev144", "remove_from_namespace": True}
        with pytest.raises(errors.Terminal, match="RoleBinding dev144/mine still gives anna144"):
            await world.run(Action.MODIFY, "anna144", **revoke)
        assert "limit-hostpath-vols" in await refusal(anna, pod(host_path("/etc")), "dev144")
        printed = await world.run(Action.MODIFY, "anna144", force=True, **revoke)
        assert "Others gave anna144 rights that stay: RoleBinding dev144/mine." in printed
        assert await is_there(world.client, permissions.ROLE_BINDINGS, "mine", "dev144")
    assert "RoleBinding dev144/mine" in await world.run(Action.REMOVE, "anna144")


async def test_item_145_a_backup_restores_identical_objects(world: World) -> None:
    users = ("john145", "anna145")
    for user in users:
        await world.run(Action.ADD, user, operators="spark-operator,cm-jupyter-kernel-operator", role="admin")
    file, again = world.people.folder / "backup.yaml", world.people.folder / "again.yaml"
    await world.run(Action.BACKUP, file=file)

    def of_these(path: Any) -> list[RawObject]:
        return [obj for obj in yaml.safe_load(path.read_text()) if obj["spec"]["username"] in users]

    assert len(of_these(file)) == 6
    assert all(set(obj) == {"apiVersion", "kind", "metadata", "spec"} for obj in of_these(file))
    for user in users:
        await world.run(Action.REMOVE, user)
    await world.run(Action.RESTORE, file=file)
    await world.run(Action.BACKUP, file=again)
    assert of_these(again) == of_these(file)
    assert await may(world.client, "john145", "create", "pods", "john145-restricted")


async def test_item_146_the_interactive_form_asks_eight_questions_in_order(world: World) -> None:
    world.answers = ["", "john146", "", "view", "n", "/data", "1460:1461,1462", "spark-operator"]
    await world.run(Action.ADD, is_interactive=True, name="prod")
    words = ("Cluster", "User name", "Namespace", "Role", "any user", "paths", "UID and GIDs", "Operators")
    assert len(world.questions) == 8
    assert all(word in question for word, question in zip(words, world.questions, strict=True))
    (entry,) = json.loads(await world.run(Action.GET, "john146", as_json=True))
    assert {key: entry[key] for key in ("namespace", "role", "uid", "gids", "paths", "operators", "all_uids")} == {
        "namespace": "john146-restricted",
        "role": "view",
        "uid": 1460,
        "gids": [1461, 1462],
        "paths": ["/data"],
        "operators": ["spark-operator"],
        "all_uids": False,
    }


async def test_item_154_the_expiry_of_a_certificate_is_shown_and_renewed(world: World) -> None:
    await world.run(Action.ADD, "john154", days=30)
    account = world.people.find("john154")
    assert account is not None

    def expiry() -> datetime:
        (user,) = yaml.safe_load((account.home / ".kube/config").read_text())["users"]
        return certificates.expiry_of(base64.b64decode(user["user"]["client-certificate-data"]))

    first = expiry()
    assert f"Certificate expires: {first:%Y-%m-%d}" in await world.run(Action.GET, "john154")
    await world.run(Action.RENEW, "john154")
    second = expiry()
    assert 363 <= (second - datetime.now(UTC)).days <= 365
    assert f"Certificate expires: {second:%Y-%m-%d}" in await world.run(Action.GET, "john154")
    async with acting_as(world, "john154") as john:
        await john.list(PODS, "john154-restricted")


@pytest.mark.real
@pytest.mark.parametrize("place", ["real"], indirect=True)
async def test_items_135_137_kubectl_agrees(world: World) -> None:
    """`kubectl` with the user's own file."""
    await world.run(Action.ADD, "anna137", role="view")
    account = world.people.find("anna137")
    assert account is not None
    kubectl = [str(programs.built("kubectl")), "--kubeconfig", str(account.home / ".kube/config")]

    def answer(*arguments: str) -> tuple[int, str]:
        done = subprocess.run([*kubectl, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.strip() + done.stderr.strip()

    assert answer("config", "current-context") == (0, "anna137@kubernetes")
    assert answer("auth", "can-i", "list", "pods")[0] == 0
    assert answer("auth", "can-i", "create", "pods")[0] == 1
    assert answer("get", "nodes")[0] == 0
    code, text = answer("get", "pods", "-n", "default")
    assert (code, "Forbidden" in text) == (1, True)
    # Our entries carry an extension; kubectl keeps it when it writes the file.
    assert answer("config", "set-context", "--current", "--namespace=default")[0] == 0
    await world.run(Action.RENEW, "anna137")
    assert len(yaml.safe_load((account.home / ".kube/config").read_text())["users"]) == 1
