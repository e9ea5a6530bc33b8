"""Lean models: what they read from the wire, what they skip, what they must not show."""

from __future__ import annotations

import gc
from datetime import UTC, datetime

import msgspec
import pytest

from bedplate.api import core, discovery, meta, resources


def decode(model: type, document: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(document), type=model)


def test_names_with_irregular_capitals_are_read() -> None:
    node = decode(
        core.Node,
        {
            "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": "x://1"},
            "status": {"nodeInfo": {"machineID": "m", "systemUUID": "s", "bootID": "b", "osImage": "o"}},
        },
    )
    assert isinstance(node, core.Node)
    assert (node.spec.pod_cidr, node.spec.pod_cidrs, node.spec.provider_id) == (
        "10.0.0.0/24",
        ("10.0.0.0/24",),
        "x://1",
    )
    info = node.status.node_info
    assert (info.machine_id, info.system_uuid, info.boot_id, info.os_image) == ("m", "s", "b", "o")
    service = decode(
        core.Service,
        {
            "spec": {
                "clusterIP": "1.2.3.4",
                "clusterIPs": ["1.2.3.4"],
                "externalIPs": ["5.6.7.8"],
                "loadBalancerIP": "9",
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1", "ipMode": "VIP"}]}},
        },
    )
    assert isinstance(service, core.Service)
    assert (service.spec.cluster_ip, service.spec.cluster_ips) == ("1.2.3.4", ("1.2.3.4",))
    assert (service.spec.external_ips, service.spec.load_balancer_ip) == (("5.6.7.8",), "9")
    assert service.status.load_balancer.ingress[0].ip_mode == "VIP"
    pod = decode(core.Pod, {"status": {"hostIP": "h", "podIP": "p", "podIPs": [{"ip": "p"}]}})
    assert isinstance(pod, core.Pod)
    assert (pod.status.host_ip, pod.status.pod_ip, pod.status.pod_ips[0].ip) == ("h", "p", "p")


@pytest.mark.parametrize("ref", resources.ALL, ids=str)
def test_every_model_reads_an_empty_object_and_skips_what_it_does_not_know(ref: resources.ResourceRef[object]) -> None:
    found = decode(ref.model, {"metadata": {"name": "a", "managedFields": [{"x": 1}]}, "novel": {"deep": [1, 2]}})
    assert found["metadata"]["name"] == "a" if ref.model is dict else found.metadata.name == "a"  # type: ignore[index, attr-defined]


def test_lists_that_go_writes_as_null_are_read() -> None:
    assert decode(core.Pod, {"spec": {"containers": None}}).spec.containers is None  # type: ignore[attr-defined]
    found = decode(discovery.EndpointSlice, {"endpoints": None, "ports": None})
    assert isinstance(found, discovery.EndpointSlice)
    assert decode(core.Node, {"metadata": {"creationTimestamp": None}}) == core.Node()


def test_a_target_port_is_a_number_or_a_name() -> None:
    service = decode(
        core.Service, {"spec": {"ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 8081}]}}
    )
    assert isinstance(service, core.Service)
    assert [port.target_port for port in service.spec.ports] == ["http", 8081]


def test_times_become_datetimes_in_utc() -> None:
    found = decode(meta.ObjectMeta, {"creationTimestamp": "2026-01-02T03:04:05Z"})
    assert isinstance(found, meta.ObjectMeta)
    assert found.creation_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_secret_is_decoded_and_never_shown() -> None:
    secret = decode(core.Secret, {"metadata": {"name": "s", "namespace": "n"}, "data": {"password": "aHVudGVyMg=="}})
    assert isinstance(secret, core.Secret)
    assert secret.data["password"] == b"hunter2"
    assert "hunter2" not in repr(secret)
    assert "password" in repr(secret)


def test_a_list_answer_without_items_or_metadata_is_not_a_list() -> None:
    decoder = msgspec.json.Decoder(meta.ListEnvelope[core.Node])
    for body in (
        b"{}",
        b'{"kind":"NodeList","metadata":{}}',
        b'{"kind":"NodeList","items":[]}',
        b'{"items":[],"metadata":{}}',
    ):
        with pytest.raises(msgspec.ValidationError):
            decoder.decode(body)
    assert decoder.decode(b'{"kind":"NodeList","metadata":{"resourceVersion":"7"},"items":null}').items is None


def test_models_are_immutable_and_stay_out_of_the_garbage_collector() -> None:
    node = decode(core.Node, {"metadata": {"name": "a", "labels": {"x": "y"}}})
    assert isinstance(node, core.Node)
    with pytest.raises(AttributeError):
        node.kind = "Other"  # type: ignore[misc]
    assert not gc.is_tracked(node)
    assert not gc.is_tracked(node.metadata)
    assert not gc.is_tracked(node.metadata.labels)


def test_the_controller_is_the_owner_that_says_so() -> None:
    owners = (meta.OwnerReference(name="a"), meta.OwnerReference(name="b", controller=True))
    found = meta.ObjectMeta(owner_references=owners).controller
    assert found is not None and found.name == "b"
    assert meta.ObjectMeta().controller is None


def test_a_node_is_ready_only_when_its_condition_says_true() -> None:
    def node(status: str) -> core.Node:
        return core.Node(status=core.NodeStatus(conditions=(meta.Condition(type="Ready", status=status),)))

    assert node("True").is_ready
    assert not node("Unknown").is_ready
    assert not core.Node().is_ready


def test_label_keys_of_many_objects_are_one_string_in_memory() -> None:
    body = b'{"metadata":{"labels":{"topology.kubernetes.io/zone":"a"}}}'
    decoder = msgspec.json.Decoder(core.Node)
    first, second = (next(iter(decoder.decode(body).metadata.labels)) for _ in range(2))
    assert first is second
