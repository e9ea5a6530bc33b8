"""The certificate of a cluster's ingress: files, checks of a pair, Secret and patch."""

from __future__ import annotations

import base64
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bedplate.api.resources import DEPLOYMENTS, SECRETS
from bedplate.core import errors
from bedplate.head.applications.applying import LABEL
from bedplate.head.ingress import certificates, installing
from bedplate.head.ingress.certificates import checked, generate_authority, generate_pair
from bedplate.head.ingress.installing import Controller
from bedplate.kube import Client
from bedplate.serving import issuing
from bedplate.serving.issuing import Pair, Use

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DOMAINS = ["cluster.example.com", "*.apps.cluster.example.com", "master.cm.cluster", "10.141.0.1"]


def made(folder: Path, domains: list[str] = DOMAINS, now: datetime = NOW) -> Pair:
    generate_authority(folder, "default", now)
    return generate_pair(folder, domains, now)


def test_item_177_five_files_for_the_owner_alone_with_all_names(tmp_path: Path) -> None:
    folder = tmp_path / "default"
    pair = made(folder)
    assert sorted(file.name for file in folder.iterdir()) == sorted(certificates.FILES)
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    assert issuing.hosts_of(certificate) == set(DOMAINS)
    authority = x509.load_pem_x509_certificate((folder / "ingress-ca.crt").read_bytes())
    certificate.verify_directly_issued_by(authority)
    request = x509.load_pem_x509_csr((folder / "ingress-server.csr").read_bytes())
    assert request.is_signature_valid and request.public_key() == certificate.public_key()
    assert len(installing.STAGES) == 5


def test_item_177_a_repeated_run_keeps_the_authority_that_users_trust(tmp_path: Path) -> None:
    first = made(tmp_path)
    authority = (tmp_path / "ingress-ca.crt").read_bytes()
    second = made(tmp_path, now=NOW + timedelta(days=700))
    assert second != first and (tmp_path / "ingress-ca.crt").read_bytes() == authority
    made(tmp_path, now=NOW + timedelta(days=3600))
    assert (tmp_path / "ingress-ca.crt").read_bytes() != authority


def test_a_damaged_authority_and_bad_names_are_told(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="cannot issue"):
        generate_pair(tmp_path, DOMAINS, NOW)
    made(tmp_path)
    for names in ([], ["bücher.example"]):
        with pytest.raises(errors.Invalid):
            generate_pair(tmp_path, names, NOW)
    (tmp_path / "ingress-ca.key").write_text("nothing")
    with pytest.raises(errors.Invalid, match="cannot read the ingress authority"):
        generate_authority(tmp_path, "default", NOW)


def test_item_178_a_pair_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    pair, other = made(tmp_path / "a"), made(tmp_path / "b")
    assert checked(pair, ["cluster.example.com", "x.apps.cluster.example.com"], NOW) == []
    for wrong, reason in (
        (Pair(pair.certificate, other.key), "does not belong"),
        (Pair(b"nothing", pair.key), "not PEM"),
        (Pair(pair.certificate, b"nothing"), "not PEM"),
    ):
        with pytest.raises(errors.Invalid, match=reason):
            checked(wrong, DOMAINS, NOW)
    with pytest.raises(errors.Invalid, match="expired on 2028-04-05"):
        checked(pair, DOMAINS, NOW + timedelta(days=900))
    with pytest.raises(errors.Invalid, match="not valid before"):
        checked(pair, DOMAINS, NOW - timedelta(days=2))


def test_item_178_a_name_that_is_missing_and_an_end_that_is_near_are_warned_of(tmp_path: Path) -> None:
    pair = made(tmp_path)
    (missing,) = checked(pair, ["other.example.com", "a.b.apps.cluster.example.com"], NOW)
    assert "no name for other.example.com, a.b.apps.cluster.example.com" in missing
    assert any("expires on" in text for text in checked(pair, DOMAINS, NOW + timedelta(days=800)))


def test_item_178_an_rsa_pair_is_taken_and_an_encrypted_key_is_not(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    plain, locked = (
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
        for how in (serialization.NoEncryption(), serialization.BestAvailableEncryption(b"x"))
    )
    authority = issuing.Authority.create("x", NOW, timedelta(days=1000))
    pem = authority.certify(key.public_key(), "x", NOW, timedelta(days=365), uses=[Use.SERVER], hosts=["x.example"])
    assert checked(Pair(pem, plain), ["x.example"], NOW) == []
    with pytest.raises(errors.Invalid, match="encrypted"):
        checked(Pair(pem, locked), [], NOW)


def deployment(*args: str, **labels: str) -> dict[str, Any]:
    own = {"app.kubernetes.io/name": "ingress-nginx", "app.kubernetes.io/component": "controller", **labels}
    container = {"name": "controller", "image": "x", "args": list(args)}
    template = {"metadata": {"labels": own}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": "controller", "namespace": "n", "resourceVersion": "1", "labels": own},
        "spec": {"selector": {"matchLabels": {"app.kubernetes.io/name": "ingress-nginx"}}, "template": template},
    }


def test_the_option_replaces_another_one_and_a_controller_that_has_it_is_left_alone(tmp_path: Path) -> None:
    pair = made(tmp_path)
    body = deployment("a", "--default-ssl-certificate=x/y", "b")
    patch = installing.planned(Controller(DEPLOYMENTS, "n", "controller", body), pair)
    own = f"--default-ssl-certificate=n/{installing.SECRET}"
    template = patch["spec"]["template"]
    assert template["spec"]["containers"][0]["args"] == ["a", "b", own]
    done = deployment("a", "b", own)
    done["spec"]["template"]["metadata"]["annotations"] = template["metadata"]["annotations"]
    assert installing.planned(Controller(DEPLOYMENTS, "n", "controller", done), pair) == {}


def test_a_controller_of_an_application_is_changed_in_its_manifests(tmp_path: Path) -> None:
    pair = made(tmp_path)
    body = deployment("a", **{LABEL: "system.ingress_controller"})
    with pytest.raises(errors.Invalid, match="kept applied by the application") as refused:
        installing.planned(Controller(DEPLOYMENTS, "n", "controller", body), pair)
    assert "--default-ssl-certificate=n/" in refused.value.hint
    body["spec"]["template"]["spec"]["containers"][0]["args"] = [f"--default-ssl-certificate=n/{installing.SECRET}"]
    assert installing.planned(Controller(DEPLOYMENTS, "n", "controller", body), pair) == {}


async def test_secret_and_option_come_into_the_cluster_once(client: Client, namespace: str, tmp_path: Path) -> None:
    pair, body = made(tmp_path), deployment("--election-id=x")
    body["metadata"] = {"name": "controller", "labels": body["metadata"]["labels"]}
    await client.create(DEPLOYMENTS, body, namespace)
    found = await installing.find(client)
    assert (found.namespace, found.name) == (namespace, "controller")
    await installing.create_secret(client, found, pair)
    assert await installing.patch(client, found, pair)
    assert not await installing.patch(client, await installing.find(client), pair)
    written = await client.get(SECRETS.raw(), installing.SECRET, namespace)
    assert base64.b64decode(written["data"]["tls.crt"]) == pair.certificate and written["type"] == "kubernetes.io/tls"
    (container,) = (await installing.find(client)).body["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--election-id=x", f"--default-ssl-certificate={namespace}/{installing.SECRET}"]
    assert await installing.patch(client, found, made(tmp_path, ["other.example.com"])), "pods start for the new one"
    await client.delete(DEPLOYMENTS, "controller", namespace)
    with pytest.raises(errors.NotFound):
        await installing.find(client)
