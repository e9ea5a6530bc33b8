"""Request bodies in Kubernetes protobuf, as typed Go clients write them."""

from __future__ import annotations

import base64

from tests.conformance import objects
from tests.conformance.http import Api, Json, Reply
from tests.conformance.objects import config_map, core, path
from tests.conformance.wire import PROTOBUF, block, envelope, mapping, number, object_meta


async def send(api: Api, method: str, target: str, body: bytes) -> Reply:
    return await api.request(method, target, body, content_type=PROTOBUF)


async def make(api: Api, target: str, body: bytes) -> Json:
    return (await send(api, "POST", target, body)).expect(201)


async def test_a_config_map_is_created(api: Api, ns: str) -> None:
    raw = (
        block(1, object_meta("a", {"x": "y"}))
        + mapping(2, {"k": "v"})
        + mapping(3, {"bin": b"\x00\xff"})
        + number(4, 1)
    )
    made = await make(api, core(ns, "configmaps"), envelope("v1", "ConfigMap", raw))
    assert made["metadata"]["name"] == "a"
    assert made["metadata"]["labels"] == {"x": "y"}
    assert made["data"] == {"k": "v"}
    assert base64.b64decode(made["binaryData"]["bin"]) == b"\x00\xff"
    assert made["immutable"] is True


async def test_an_update_with_a_version(api: Api, ns: str) -> None:
    held = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    metadata = object_meta("a", resource_version=held["metadata"]["resourceVersion"])
    body = envelope("v1", "ConfigMap", block(1, metadata) + mapping(2, {"k": "2"}))
    updated = (await send(api, "PUT", core(ns, "configmaps", "a"), body)).expect(200)
    assert updated["data"] == {"k": "2"}
    (await send(api, "PUT", core(ns, "configmaps", "a"), body)).fails(409, "Conflict")


async def test_a_pod_with_nested_lists_quantities_and_ports(api: Api, ns: str) -> None:
    await objects.usable_namespace(api, ns)
    quantity = block(1, "100m")
    requests = block(2, block(1, "cpu") + block(2, quantity))
    port = block(1, "http") + number(2, 0) + number(3, 8080) + block(4, "TCP") + block(5, "")
    env = block(1, "KEY") + block(2, "value")
    probe_get = block(1, "/healthz") + block(2, number(1, 1) + number(2, 0) + block(3, "http"))
    probe = block(1, block(2, probe_get)) + number(2, 5)
    container = block(1, "main") + block(2, "example/main:1") + block(4, "run") + block(6, port) + block(7, env)
    container += block(8, requests) + block(10, probe)
    spec = block(2, container) + number(4, 30) + mapping(7, {"disk": "ssd"})
    made = await make(api, core(ns, "pods"), envelope("v1", "Pod", block(1, object_meta("p")) + block(2, spec)))
    (made_container,) = made["spec"]["containers"]
    assert made_container["args"] == ["run"]
    assert made_container["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    assert made_container["env"] == [{"name": "KEY", "value": "value"}]
    assert made_container["resources"] == {"requests": {"cpu": "100m"}}
    assert made_container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http", "scheme": "HTTP"}
    assert made["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert made["spec"]["terminationGracePeriodSeconds"] == 30


async def test_a_service_with_int_or_string_ports(api: Api, ns: str) -> None:
    first = block(1, "http") + block(2, "TCP") + number(3, 80) + block(4, number(1, 0) + number(2, 8080) + block(3, ""))
    second = (
        block(1, "named") + block(2, "TCP") + number(3, 81) + block(4, number(1, 1) + number(2, 0) + block(3, "web"))
    )
    spec = block(1, first) + block(1, second) + mapping(2, {"app": "x"})
    made = await make(api, core(ns, "services"), envelope("v1", "Service", block(1, object_meta("s")) + block(2, spec)))
    assert [port["targetPort"] for port in made["spec"]["ports"]] == [8080, "web"]
    assert made["spec"]["clusterIP"]


async def test_a_lease_with_micro_times(api: Api, ns: str) -> None:
    moment = number(1, 1767322445) + number(2, 678901000)
    spec = block(1, "me") + number(2, 15) + block(3, moment) + block(4, moment) + number(5, 0)
    body = envelope("coordination.k8s.io/v1", "Lease", block(1, object_meta("l")) + block(2, spec))
    made = await make(api, path("coordination.k8s.io", "v1", ns, "leases"), body)
    assert made["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-02T02:54:05.678901Z",
        "renewTime": "2026-01-02T02:54:05.678901Z",
        "leaseTransitions": 0,
    }


async def test_a_secret_keeps_its_bytes(api: Api, ns: str) -> None:
    raw = block(1, object_meta("s")) + mapping(2, {"key": b"\x01\x02\xfe"}) + block(3, "Opaque")
    made = await make(api, core(ns, "secrets"), envelope("v1", "Secret", raw))
    assert base64.b64decode(made["data"]["key"]) == b"\x01\x02\xfe"


async def test_delete_options(api: Api, ns: str) -> None:
    held = await api.create(core(ns, "configmaps"), config_map("a"))
    wrong = envelope("v1", "DeleteOptions", block(2, block(1, "11111111-2222-3333-4444-555555555555")))
    (await send(api, "DELETE", core(ns, "configmaps", "a"), wrong)).fails(409, "Conflict")
    right = envelope("v1", "DeleteOptions", block(2, block(1, held["metadata"]["uid"])) + block(4, "Background"))
    (await send(api, "DELETE", core(ns, "configmaps", "a"), right)).expect(200)


async def test_unknown_fields_are_skipped(api: Api, ns: str) -> None:
    raw = block(1, object_meta("a")) + mapping(2, {"k": "v"}) + block(900, "from the future") + number(901, 7)
    assert (await make(api, core(ns, "configmaps"), envelope("v1", "ConfigMap", raw)))["data"] == {"k": "v"}


async def test_broken_bytes_are_a_bad_request(api: Api, ns: str) -> None:
    whole = envelope("v1", "ConfigMap", block(1, object_meta("a")))
    for body in (b"nonsense", whole[:-9], b"k8s\x00\xff\xff"):
        reply = await send(api, "POST", core(ns, "configmaps"), body)
        assert reply.status == 400, (body, reply)
    wrong_kind = envelope("v1", "Secret", block(1, object_meta("a")))
    (await send(api, "POST", core(ns, "configmaps"), wrong_kind)).fails(400, "BadRequest")


async def test_a_client_that_prefers_protobuf_but_takes_json_is_served(api: Api, ns: str) -> None:
    body = envelope("v1", "ConfigMap", block(1, object_meta("a")))
    accept = f"{PROTOBUF},application/json"
    reply = await api.request("POST", core(ns, "configmaps"), body, content_type=PROTOBUF, accept=accept)
    assert reply.status == 201
    assert reply.headers["Content-Type"] in (PROTOBUF, "application/json")
