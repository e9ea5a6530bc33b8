"""Machines become nodes over HTTP; what a node's credential opens, and what it does not; requests out of order."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.head.csrs import csr, new_key
from tests.ui.rest.serving import Served
from tests.waiting import DEADLINE_S

from bedplate.api.headapi import Facts
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.policy import ENROL, ENROL_CATEGORY
from bedplate.head.schema.entity import Schema
from bedplate.ui.rest.addresses import OPERATIONS
from bedplate.ui.rest.operations import Operation


async def machine(server: Served, kind: str = ENROL, subject: str = "node001", **more: object) -> HeadClient:
    options: dict[str, object] = {"uses": 1, "lasts": timedelta(hours=1), **more}
    _, text = await server.service.access.tokens.create(kind, subject, "", **options)  # type: ignore[arg-type]
    return HeadClient(server.url, token=text, attempts=1)


async def test_a_machine_enrols_with_a_token_and_opens_nothing_else(server: Served) -> None:
    async with await machine(server) as client:
        request = csr()
        answer = await client.enrol(request, Facts(hostname="node001"))
        assert (answer.state, answer.node) == ("issued", "node001") and "BEGIN CERTIFICATE" in answer.certificate
        assert (await client.enrol(request)).certificate == answer.certificate
        assert (await client.enrolment(answer.id)).authority == answer.authority
        assert (await client.whoami()).role == "enrol"
        for refused in (
            client.tree(),
            client.desired("node001"),
            client.report("node001"),
            client.enrolments(),
            client.decide_enrolment("node001", approve=True),
            client.renew_certificate("node001", csr()),
            client.create_token("node001", kind="enrol"),
            client.join("node001"),
        ):
            with pytest.raises(errors.Denied):
                await refused


async def test_the_certificate_of_an_enrolled_node_is_listed_before_it_is_used(
    server: Served, client: HeadClient
) -> None:
    async with await machine(server) as asking:
        answer = await asking.enrol(csr())
    (listed,) = [item for item in await client.certificates() if item.use == "node"]
    assert (listed.subject, listed.expires, listed.used, listed.revoked) == ("node001", answer.ends, "", False)
    assert listed.issuer == "bedplate head basecm10"
    await client.revoke_certificates(fingerprint=listed.fingerprint)
    assert [item.revoked for item in await client.certificates() if item.use == "node"] == [True]
    assert server.service.fleet is not None and not server.service.fleet.enrolments.has_certificate("node001")


async def test_people_do_not_enrol_and_only_administrators_decide(server: Served, client: HeadClient) -> None:
    async with await machine(server, ENROL_CATEGORY, "default", uses=5) as asking:
        await client.patch("category", "default", {"enrolment": "APPROVAL"})
        headers = {"Authorization": f"Bearer {token_of(asking)}"}
        body = {"csr": csr(), "facts": {"hostname": "node004"}}
        async with (
            aiohttp.ClientSession(server.url, headers=headers) as http,
            http.post("/api/v1/enrolments", json=body) as sent,
        ):
            assert sent.status == 202
            waits = await sent.json()
        assert waits["state"] == "pending" and "certificate" not in waits
        polling = asyncio.create_task(asking.enrolment(waits["id"], wait_s=60))
        await asyncio.sleep(0.05)
        assert not polling.done()
        for user in ("olga", "arno", "node001"):
            async with server.client(user) as other:
                with pytest.raises(errors.Denied):
                    await other.decide_enrolment(waits["id"], approve=True)
                with pytest.raises(errors.Denied):
                    await other.enrol(csr())
        with pytest.raises(errors.Denied):
            await client.enrol(csr())
        listed = await client.enrolments()
        assert [(one.node, one.state, one.facts.hostname) for one in listed] == [("node004", "pending", "node004")]
        decided = await client.decide_enrolment("node004", approve=True, text="yes")
        assert decided.state == "issued" and decided.by == "admin"
        async with asyncio.timeout(DEADLINE_S):
            told = await polling
        assert "BEGIN CERTIFICATE" in told.certificate
        assert (await client.enrolment(waits["id"])).certificate == "", "people are told who, not given credentials"
        with pytest.raises(errors.Conflict):
            await client.decide_enrolment(waits["id"], approve=False)
        with pytest.raises(errors.NotFound):
            await client.decide_enrolment("nobody", approve=False)


def token_of(client: HeadClient) -> str:
    return client._transport._credential.token


async def test_a_poll_ends_with_its_token(server: Served, client: HeadClient) -> None:
    await client.patch("category", "default", {"enrolment": "APPROVAL"})
    async with await machine(server) as asking:
        waits = await asking.enrol(csr())
        assert waits.state == "pending"
        assert (await asking.enrolment(waits.id, wait_s=1)).state == "pending"
        polling = asyncio.create_task(asking.enrolment(waits.id, wait_s=200))
        await asyncio.sleep(0.05)
        for token in server.service.access.tokens.list():
            if token.kind == ENROL:
                await server.service.access.tokens.revoke(token.id)
        await client.decide_enrolment(waits.id, approve=False)
        with pytest.raises(errors.Denied):
            async with asyncio.timeout(DEADLINE_S):
                await polling


async def test_an_open_poll_of_a_node_ends_at_once_when_it_is_revoked(server: Served) -> None:
    """Long before the next heartbeat, which is 15 s away."""
    async with server.client("node001") as node:
        first = await node.desired("node001")
        assert first is not None
        waiting = asyncio.create_task(node.desired("node001", first.etag, wait_s=300))
        other = asyncio.create_task(poll_of(server, "node002"))
        await asyncio.sleep(0.1)
        assert not waiting.done() and not other.done()
        token = next(one for one in server.service.access.tokens.list() if one.subject == "node001")
        await server.service.access.tokens.revoke(token.id)
        async with asyncio.timeout(5):
            with pytest.raises(errors.Denied):
                await waiting
        assert not other.done(), "others wait on"
        other.cancel()


async def poll_of(server: Served, name: str) -> None:
    async with server.client(name) as node:
        first = await node.desired(name)
        assert first is not None
        await node.desired(name, first.etag, wait_s=300)


# What a node's credential opens


def addresses(schema: Schema) -> list[tuple[str, str, Operation]]:
    """Every method of every address, about the node itself and about another."""
    found = []
    for operation in OPERATIONS:
        for node in ("node001", "node002"):
            path = operation.path.replace("{mode}", "device").replace("{name}", node).replace("{key}", node)
            path = re.sub(r"\{number\}", "1", re.sub(r"\{[a-z]+\}", "x", path))
            found.append((operation.method, path, operation))
    return found


OPEN = {
    ("GET", "/api/v1/whoami"),
    ("GET", "/api/v1/nodes/node001/desired"),
    ("POST", "/api/v1/nodes/node001/report"),
    ("POST", "/api/v1/nodes/node001/turns"),
    ("POST", "/api/v1/nodes/node001/turns/x"),
    ("POST", "/api/v1/nodes/node001/images/x"),
    ("POST", "/api/v1/nodes/node001/snapshots/x"),
    ("GET", "/api/v1/nodes/node001/agents/x"),
}
"""All that node001 may ask for; what is public is not asked with a credential. Its next certificate is for who has the
present one, which a token is not."""


async def test_a_node_reads_its_own_desired_state_and_reports_for_itself_alone(server: Served) -> None:
    headers = {"Authorization": f"Bearer {server.tokens['node001']}", "Content-Type": "application/json"}
    asked = 0
    async with aiohttp.ClientSession(server.url, headers=headers) as http:
        for method, path, operation in addresses(server.head.tree.schema):
            if operation.is_public:
                continue
            async with http.request(method, path, data=b"{}" if operation.body else None) as answer:
                asked += 1
                text = await answer.text()
                if (method, path) in OPEN:
                    assert answer.status in (200, 400, 404), (method, path, text)
                else:
                    assert answer.status == 403, (method, path, answer.status, text)
                    assert json.loads(text)["detail"].startswith("node node001 may not"), text
    assert asked > 60


# Requests out of order


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(lambda: ec.generate_private_key(ec.SECP384R1()), id="p-384"),
        pytest.param(ed25519.Ed25519PrivateKey.generate, id="ed25519"),
        pytest.param(lambda: rsa.generate_private_key(65537, 2048), id="rsa-2048"),
    ],
)
async def test_keys_that_tls_clients_use_are_accepted(server: Served, key: object) -> None:
    async with await machine(server) as client:
        assert (await client.enrol(csr(key()))).state == "issued"  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "cannot be read", id="nothing"),
        pytest.param("hello", "not a certificate signing request", id="no-pem"),
        pytest.param(lambda: csr().replace("REQUEST", "THING"), "not a certificate", id="another-thing"),
        pytest.param(lambda: csr(rsa.generate_private_key(65537, 1024)), "1024 bits", id="short-rsa"),
        pytest.param(lambda: csr(ec.generate_private_key(ec.SECP256K1())), "secp256k1", id="odd-curve"),
        pytest.param(lambda: csr(ec.generate_private_key(ec.SECP224R1())), "secp224r1", id="short-curve"),
        pytest.param(lambda: csr(dsa.generate_private_key(2048)), "this kind", id="dsa"),
        pytest.param(lambda: forged(), "signature is wrong", id="forged"),
        pytest.param("x" * 20_000, "cannot be read", id="large"),
    ],
)
async def test_a_request_that_is_not_in_order_costs_no_use(server: Served, text: object, why: str) -> None:
    async with await machine(server) as client:
        with pytest.raises(errors.Invalid, match=why):
            await client.enrol(text if isinstance(text, str) else text())  # type: ignore[operator]
        assert (await client.enrol(csr())).state == "issued"


def forged() -> str:
    """One whose public key is not that of who signed it."""
    import base64

    from cryptography.hazmat.primitives import serialization

    mine, theirs = new_key(), new_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    own, other = (key.public_key().public_bytes(serialization.Encoding.DER, form) for key in (mine, theirs))
    body = base64.b64decode("".join(csr(mine).splitlines()[1:-1])).replace(own, other)
    lines = base64.encodebytes(body).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{lines}-----END CERTIFICATE REQUEST-----\n"


@pytest.fixture(scope="module")
def good() -> bytes:
    return csr().encode()


anything = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text(max_size=20),
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.dictionaries(some.sampled_from(["csr", "facts", "macs", "hostname", "serial", "approve", "text"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    bodies=some.lists(
        some.binary(max_size=60)
        | anything.map(lambda data: json.dumps(data).encode())
        | some.builds(
            lambda text, facts: json.dumps({"csr": text, "facts": facts}).encode(),
            some.text(max_size=200),
            some.fixed_dictionaries(
                {},
                optional={"hostname": some.text(max_size=60), "macs": some.lists(some.text(max_size=20), max_size=3)},
            ),
        ),
        min_size=4,
        max_size=4,
    ),
    spoilt=some.tuples(some.integers(0, 10_000), some.integers(0, 255)),
    names=some.lists(some.text(min_size=1, max_size=40), min_size=2, max_size=2),
)
async def test_whatever_a_machine_sends_is_an_answer_and_never_a_certificate_for_it(
    server: Served,
    good: bytes,
    bodies: list[bytes],
    spoilt: tuple[int, int],
    names: list[str],
) -> None:
    at, byte = spoilt
    damaged = bytearray(good)
    damaged[at % len(damaged)] = byte
    sent = [*bodies, json.dumps({"csr": damaged.decode("latin-1")}).encode()]
    _, text = await server.service.access.tokens.create(ENROL, "node001", "", uses=1, lasts=timedelta(hours=1))
    headers = {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(server.url, headers=headers) as http:
        for body in sent:
            async with http.post("/api/v1/enrolments", data=body) as answer:
                told = await answer.json()
                if bytes(damaged) == good and body is sent[-1]:
                    continue
                # A changed line break or a changed word in the armour may leave the request what it was.
                assert answer.status in (400, 409, 413, 415) or (body is sent[-1] and answer.status in (200, 202)), told
        for name in names:
            for path in (f"/api/v1/enrolments/{name}", f"/api/v1/nodes/{name}/certificate"):
                async with http.get(path) as answer:
                    assert answer.status in (400, 403, 404, 405), (path, answer.status)
                async with http.post(path, data=bodies[0]) as answer:
                    assert answer.status in (400, 403, 404, 405), (path, answer.status)
