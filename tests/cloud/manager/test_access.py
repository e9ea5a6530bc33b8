"""Who asks: tokens, certificates, proxies that speak for others; and where their authorities come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.kube.certs import Authority

from bedplate.api import core
from bedplate.cloud.manager import access
from bedplate.cloud.manager.access import Access, Authorities, Caller, DelegatedGate, RequestGate, User
from bedplate.cloud.manager.options_serving import Authentication
from bedplate.core import errors
from bedplate.kube.client import Client

USERS, PROXIES = Authority("users"), Authority("proxies")
BOTH = Authorities(users=USERS.pem.decode(), proxies=PROXIES.pem.decode(), proxy_names=("front",))


class Delegate:
    """Knows one token; lets the user `good` in."""

    async def authenticate(self, token: str) -> User | None:
        if token == "broken":
            raise errors.Unavailable("no answer")
        if token == "unreviewed":
            raise errors.Denied("tokenreviews is forbidden")
        return {"username": "good", "groups": []} if token == "good" else None

    async def authorise(self, user: User, method: str, path: str) -> Access:
        return Access(200) if user["username"] == "good" else Access(403, "forbidden")


@pytest.fixture
def gate() -> RequestGate:
    made = RequestGate(cast(DelegatedGate, Delegate()))
    made.authorities = BOTH
    return made


def der(authority: Authority, name: str, group: str = "") -> bytes:
    certificate = x509.load_pem_x509_certificate(authority.issue(name, group=group).cert)
    return certificate.public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("caller", "status"),
    [
        (Caller(), 403),
        (Caller(token="good"), 200),
        (Caller(token="bad"), 401),
        (Caller(token="broken"), 500),
        (Caller(token="unreviewed"), 403),
        (Caller(certificate=der(USERS, "good")), 200),
        (Caller(certificate=der(USERS, "other")), 403),
        (Caller(certificate=der(Authority("users"), "good")), 401),
        (Caller(certificate=der(Authority("users"), "good"), token="good"), 200),
        (Caller(certificate=der(PROXIES, "front"), headers={"x-remote-user": ["good"]}), 200),
        (Caller(certificate=der(PROXIES, "front")), 401),
        (Caller(certificate=der(PROXIES, "good")), 401),
        (Caller(certificate=der(PROXIES, "back"), headers={"x-remote-user": ["good"]}), 401),
        (Caller(certificate=der(USERS, "other"), headers={"x-remote-user": ["good"]}), 403),
        (Caller(headers={"x-remote-user": ["good"]}), 403),
    ],
)
async def test_only_who_is_vouched_for_gets_in(gate: RequestGate, caller: Caller, status: int) -> None:
    assert (await gate.admit("get", "/metrics", caller)).status == status


def test_a_proxy_names_user_groups_and_more() -> None:
    headers = {
        "x-remote-user": ["ann"],
        "x-remote-group": ["one", "two"],
        "x-remote-extra-scopes": ["view"],
        "x-uid": ["7"],
    }
    authorities = Authorities(proxies=PROXIES.pem.decode(), uid_headers=("X-Uid",))
    user = access.certificate_user(Caller(certificate=der(PROXIES, "any"), headers=headers), authorities)
    assert user == {
        "username": "ann",
        "uid": "7",
        "groups": ["one", "two", "system:authenticated"],
        "extra": {"scopes": ["view"]},
    }


def test_a_users_certificate_names_user_and_groups() -> None:
    user = access.certificate_user(Caller(certificate=der(USERS, "ann", group="admins")), BOTH)
    assert user == {"username": "ann", "groups": ["admins", "system:authenticated"]}


def config_map(**more: str) -> dict[str, str]:
    return {
        "client-ca-file": USERS.pem.decode(),
        "requestheader-client-ca-file": PROXIES.pem.decode(),
        "requestheader-allowed-names": json.dumps(["front"]),
        "requestheader-username-headers": json.dumps(["X-User"]),
        **more,
    }


def test_the_config_map_counts_where_flags_say_nothing() -> None:
    found = access.authorities_of(config_map(), Authorities())
    assert (found.users, found.proxies) == (BOTH.users, BOTH.proxies)
    assert (found.proxy_names, found.name_headers) == (("front",), ("X-User",))
    flags = Authorities(users="given", proxies="given", proxy_names=("mine",))
    assert access.authorities_of(config_map(), flags) == flags


def test_what_cannot_be_read_in_the_config_map_is_left_out() -> None:
    data = config_map(**{"client-ca-file": "-----BEGIN CERTIFICATE-----\nx", "requestheader-allowed-names": "{"})
    found = access.authorities_of(data, Authorities())
    assert (found.users, found.proxy_names) == ("", ())


class Server:
    """Answers for the config map."""

    def __init__(self, answer: dict[str, str] | Exception) -> None:
        self._answer = answer

    async def get(self, *where: Any) -> core.ConfigMap:
        if isinstance(self._answer, Exception):
            raise self._answer
        return core.ConfigMap(data=self._answer)


async def looked_up(answer: dict[str, str] | Exception, **options: Any) -> Authorities:
    return await access.look_up(cast(Client, Server(answer)), Authentication(**options), Authorities())


async def test_a_refused_lookup_is_an_error_unless_it_is_tolerated_or_skipped() -> None:
    refused = errors.Denied("configmaps is forbidden")
    with pytest.raises(errors.Denied, match="authorities of client certificates"):
        await looked_up(refused)
    assert await looked_up(refused, authentication_tolerate_lookup_failure=True) == Authorities()
    assert await looked_up(refused, authentication_skip_lookup=True) == Authorities()
    assert await looked_up(errors.NotFound("none")) == Authorities()
    assert (await looked_up(config_map())).users == BOTH.users


def test_a_file_that_holds_no_certificate_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca"
    file.write_text("nothing")
    with pytest.raises(errors.Invalid, match="--client-ca-file"):
        access.from_flags(Authentication(client_ca_file=str(file)))
