"""Who the client is to a whole server, a real one or the embedded one: tokens, certificates, impersonation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests import programs, servers
from tests.kube.certs import Authority, Pair

from bedplate.api import auth
from bedplate.api.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    SECRETS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SERVICE_ACCOUNTS,
    TOKEN_REVIEWS,
)
from bedplate.kube import Client, errors, subresources
from bedplate.kube.config import AuthConfig, ClientConfig, ExecConfig, Impersonation, TLSConfig


async def test_a_service_account_token_works_and_is_reviewed(
    client: Client, settings: ClientConfig, namespace: str
) -> None:
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}}, namespace)
    token = await subresources.request_token(client, "robot", namespace, lifetime_s=600)
    assert token.expiration_timestamp is not None
    review = await client.create(TOKEN_REVIEWS, auth.token_review(token.token))
    assert review.status.user.username == f"system:serviceaccount:{namespace}:robot"
    tls = replace(settings.tls, cert_data=b"", cert_file="", key_data=b"", key_file="")
    async with Client(replace(settings, tls=tls, auth=AuthConfig(token=token.token))) as robot:
        with pytest.raises(errors.Forbidden, match="robot"):
            await robot.list(SECRETS, namespace)


async def test_wrong_credentials_are_unauthorized(settings: ClientConfig) -> None:
    tls = replace(settings.tls, cert_data=b"", cert_file="", key_data=b"", key_file="")
    async with Client(replace(settings, tls=tls, auth=AuthConfig(token="wrong"))) as stranger:
        with pytest.raises(errors.Unauthorized):
            await stranger.list(NODES)


async def test_an_impersonated_user_has_no_more_than_its_own_rights(settings: ClientConfig, namespace: str) -> None:
    async with Client(replace(settings, impersonate=Impersonation("bob", groups=("g",)))) as bob:
        with pytest.raises(errors.Forbidden, match='User "bob"'):
            await bob.list(CONFIG_MAPS, namespace)
        question = {"spec": {"resourceAttributes": {"verb": "list", "resource": "configmaps", "namespace": namespace}}}
        assert not (await bob.create(SELF_SUBJECT_ACCESS_REVIEWS, question)).status.allowed
    masters = Impersonation("ann", groups=("system:masters",))
    async with Client(replace(settings, impersonate=masters)) as ann:
        await ann.list(CONFIG_MAPS, namespace)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[servers.Server, Pair]]:
    """A real server that believes an authority of ours, and an administrator's certificate of that authority."""
    authority = Authority("test clients")
    file = tmp_path_factory.mktemp("clients") / "ca.crt"
    file.write_bytes(authority.pem)
    with programs.own_server("real", api_arguments=(f"--client-ca-file={file}",)) as server:
        yield server, authority.issue("ann", group="system:masters")


@pytest.mark.real
async def test_a_client_certificate_is_an_identity(certified: tuple[servers.Server, Pair]) -> None:
    server, pair = certified
    tls = TLSConfig(ca_file=str(server.ca_file), cert_data=pair.cert, key_data=pair.key)
    async with Client(ClientConfig(server.url, tls=tls, qps=-1)) as client:
        assert (await client.list(NAMESPACES)).items


@pytest.mark.real
async def test_an_exec_plugin_can_hand_out_a_client_certificate(
    certified: tuple[servers.Server, Pair], tmp_path: Path
) -> None:
    server, pair = certified
    status = {"clientCertificateData": pair.cert.decode(), "clientKeyData": pair.key.decode()}
    document = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status}
    (tmp_path / "credential").write_text(json.dumps(document))
    plugin = ExecConfig("cat", (str(tmp_path / "credential"),), interactive_mode="Never")
    tls = TLSConfig(ca_file=str(server.ca_file))
    async with Client(ClientConfig(server.url, tls=tls, auth=AuthConfig(exec=plugin), qps=-1)) as client:
        assert (await client.list(NAMESPACES)).items
