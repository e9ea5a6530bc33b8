"""Users from certificates, tokens and impersonation headers."""

from datetime import timedelta
from pathlib import Path

import pytest

from bedplate.apiserver.access import identity, tokens
from bedplate.core import errors
from bedplate.core.clock import ManualClock


def test_a_certificate_gives_name_and_groups() -> None:
    user = identity.from_certificate({"commonName": ["ann"], "organizationName": ["devs", "ops"]})
    assert user is not None
    assert (user.name, user.groups) == ("ann", ("devs", "ops", "system:authenticated"))
    assert identity.from_certificate({"organizationName": ["devs"]}) is None


def test_impersonating_a_user_needs_the_right_for_each_part() -> None:
    headers = {"impersonate-user": ["ann"], "impersonate-group": ["devs"], "impersonate-extra-scopes": ["a"]}
    wish = identity.impersonation(headers)
    assert wish is not None
    assert wish.user.groups == ("devs", "system:authenticated")
    assert [(need.resource, need.subresource, need.name) for need in wish.needs] == [
        ("users", "", "ann"),
        ("groups", "", "devs"),
        ("userextras", "scopes", "a"),
    ]


def test_an_impersonated_service_account_gets_its_groups() -> None:
    wish = identity.impersonation({"impersonate-user": ["system:serviceaccount:ns:bot"]})
    assert wish is not None
    assert "system:serviceaccounts:ns" in wish.user.groups
    assert [(need.resource, need.namespace, need.name) for need in wish.needs] == [("serviceaccounts", "ns", "bot")]


def test_groups_without_a_user_are_refused() -> None:
    with pytest.raises(ValueError, match="without impersonating a user"):
        identity.impersonation({"impersonate-group": ["devs"]})
    assert identity.impersonation({}) is None


ACCOUNT = {"metadata": {"name": "bot", "namespace": "ns", "uid": "u1"}}
POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u2"}}


class World:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.objects = {("", "serviceaccounts", "ns", "bot"): ACCOUNT, ("", "pods", "ns", "p"): POD}
        self.signer = tokens.Signer.open(folder / "key", self.clock)
        self.identities = identity.Identities(self.signer, lambda *key: self.objects.get(key))

    def token(self, *, lifetime_s: int = 3600, audience: str = tokens.DEFAULT_AUDIENCE, bound: bool = False) -> str:
        until = int((self.clock.now() + timedelta(seconds=lifetime_s)).timestamp())
        holder = ("Pod", "p", "u2") if bound else None
        return self.signer.sign(tokens.Claims("ns", "bot", "u1", (audience,), until, "id", holder))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_token_stands_for_its_account(world: World) -> None:
    found = world.identities.by_token(world.token())
    assert found is not None
    assert found[0].name == "system:serviceaccount:ns:bot"


async def test_a_token_ends_with_its_time(world: World) -> None:
    token = world.token(lifetime_s=60)
    assert world.identities.by_token(token) is not None
    await world.clock.advance(61)
    assert world.identities.by_token(token) is None


def test_a_token_ends_with_its_account_its_pod_and_their_uids(world: World) -> None:
    token = world.token(bound=True)
    assert world.identities.by_token(token) is not None
    world.objects["", "pods", "ns", "p"] = {"metadata": {"uid": "another"}}
    assert world.identities.by_token(token) is None
    world.objects["", "pods", "ns", "p"] = POD
    world.objects["", "serviceaccounts", "ns", "bot"] = {"metadata": {"uid": "another"}}
    assert world.identities.by_token(token) is None


def test_a_token_for_another_audience_opens_nothing_here_but_can_be_reviewed(world: World) -> None:
    token = world.token(audience="vault")
    assert world.identities.by_token(token) is None
    assert world.identities.review(token, ["vault", "other"])[1] == ["vault"]
    with pytest.raises(errors.Denied):
        world.identities.review(token, ["other"])


def test_a_changed_or_foreign_token_is_refused(world: World, tmp_path: Path) -> None:
    head, body, signature = world.token().split(".")
    other = World(tmp_path / "other") if (tmp_path / "other").mkdir() is None else world
    for token in (
        f"{head}.{body}x.{signature}",
        f"{head}.{body}.{signature[:-4]}AAAA",
        other.token(),
        "junk",
        "a.b.c",
        "",
    ):
        assert world.identities.by_token(token) is None


def test_the_key_is_private_and_kept(tmp_path: Path) -> None:
    first = tokens.Signer.open(tmp_path / "key", ManualClock())
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    assert tokens.Signer.open(tmp_path / "key", ManualClock()).key_id == first.key_id


def test_a_broken_key_file_is_a_clear_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("not a key")
    with pytest.raises(errors.Invalid, match="is not a private key"):
        tokens.Signer.open(tmp_path / "key", ManualClock())
    assert (tmp_path / "key").read_text() == "not a key"
