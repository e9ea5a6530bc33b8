"""The protobuf decoder against bytes of a real Go encoder, hand-made bytes, and nonsense."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from tests import programs

from bedplate.apiserver import facts
from bedplate.apiserver.protobuf import decoding
from bedplate.core import errors

PROGRAM = Path(__file__).parents[2] / "clientgo" / "protobytes"


@pytest.fixture(scope="module")
def decoder() -> decoding.Decoder:
    return decoding.Decoder(facts.load())


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Kind, JSON and protobuf of generated objects, from the Go program beside the client-go tests."""
    go = str(programs.on_path("go"))
    program = tmp_path_factory.mktemp("go") / "protobytes"
    built = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=PROGRAM,
        env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    if built.returncode and ("dial tcp" in built.stderr or "no such host" in built.stderr):
        pytest.skip("needs the Go module proxy: the client-go modules are not in the cache")
    assert built.returncode == 0, built.stderr
    lines = subprocess.run([program], capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.external
def test_every_kind_decodes_to_what_go_writes_as_json(decoder: decoding.Decoder, pairs: list[dict[str, Any]]) -> None:
    table = facts.load()
    seen = set()
    for pair in pairs:
        expected = pair["json"]
        if table.type_name(expected["apiVersion"], expected["kind"]) is None:
            continue  # kinds that no server takes, such as RangeAllocation
        decoded = decoder.decode(base64.b64decode(pair["proto"]))
        assert decoded.object == expected, pair["kind"]
        seen.add(decoded.kind)
    must = {"Pod", "Lease", "Event", "Eviction", "Scale", "Binding", "TokenRequest", "SubjectAccessReview"}
    assert must | {"CustomResourceDefinition", "DeleteOptions"} <= seen
    assert len(seen) > 60


@pytest.mark.external
def test_damaged_bytes_never_crash(decoder: decoding.Decoder, pairs: list[dict[str, Any]]) -> None:
    whole = [base64.b64decode(pair["proto"]) for pair in pairs if "Kind=Pod" in pair["kind"]]

    @hypothesis.given(st.sampled_from(whole), st.integers(0, 10**6), st.integers(0, 255))
    def damage(data: bytes, position: int, byte: int) -> None:
        position %= len(data)
        for damaged in (data[:position], data[:position] + bytes([byte]) + data[position + 1 :]):
            try:
                decoder.decode(damaged)
            except errors.Invalid as refusal:
                assert str(refusal)

    damage()


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def text(number: int, value: bytes | str) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def envelope(api_version: str, kind: str, message: bytes, content_type: str = "") -> bytes:
    content = text(1, text(1, api_version) + text(2, kind)) + text(2, message) + text(3, "") + text(4, content_type)
    return decoding.MAGIC + content


def test_small_config_map(decoder: decoding.Decoder) -> None:
    entry = text(1, "key") + text(2, "value")
    message = text(1, text(1, "name") + text(3, "default")) + text(2, entry) + text(3, text(1, "raw") + text(2, b"\0"))
    decoded = decoder.decode(envelope("v1", "ConfigMap", message))
    assert decoded.api_version == "v1"
    assert decoded.object == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "name", "namespace": "default"},
        "data": {"key": "value"},
        "binaryData": {"raw": "AA=="},
    }


def test_zero_behind_a_pointer_is_kept_and_a_plain_zero_dropped(decoder: decoding.Decoder) -> None:
    spec = varint(1 << 3) + b"\0"  # replicas: a pointer
    assert decoder.decode_message("io.k8s.api.apps.v1.DeploymentSpec", spec)["replicas"] == 0
    container = text(1, "c") + varint(16 << 3) + b"\0"  # stdin: a plain bool
    assert "stdin" not in decoder.decode_message("io.k8s.api.core.v1.Container", container)


def test_negative_numbers_packed_numbers_and_unknown_fields(decoder: decoding.Decoder) -> None:
    minus_one = b"\xff" * 9 + b"\x01"
    context = "io.k8s.api.core.v1.PodSecurityContext"
    assert decoder.decode_message(context, varint(2 << 3) + minus_one)["runAsUser"] == -1
    packed = text(4, varint(5) + varint(300))
    assert decoder.decode_message(context, packed)["supplementalGroups"] == [5, 300]
    assert decoder.decode_message(context, text(900, "new") + varint(901 << 3 | 5) + b"abcd") == {}


def test_json_in_an_envelope_is_json(decoder: decoding.Decoder) -> None:
    data = envelope("v1", "ConfigMap", b'{"data":{"a":"b"}}', "application/json")
    assert decoder.decode(data).object == {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "magic"),
        (decoding.MAGIC, "no kind"),
        (envelope("v1", "Nothing", b""), 'no kind "Nothing" is registered for version "v1"'),
        (envelope("v1", "Pod", b"\x0a\xff"), "ends early"),
        (envelope("v1", "Pod", b"\x0a\x05a"), "longer than its message"),
        (envelope("v1", "Pod", b"\x80" * 12), "more than ten bytes"),
        (envelope("v1", "Pod", b"\x0f"), "wire type"),
        (envelope("v1", "Pod", text(1, text(1, b"\xff\xfe"))), "utf-8"),
        (envelope("v1", "ConfigMap", b"[1]", "application/json"), "no object"),
        (envelope("v1", "ConfigMap", b"{", "application/json"), "not valid"),
    ],
)
def test_bad_bytes_are_refused_with_a_reason(decoder: decoding.Decoder, data: bytes, reason: str) -> None:
    with pytest.raises(errors.Invalid, match=reason):
        decoder.decode(data)


def test_endless_nesting_is_refused(decoder: decoding.Decoder) -> None:
    schema = b""
    for _ in range(3000):
        schema = text(28, schema)  # not: a schema within a schema
    with pytest.raises(errors.Invalid, match="deeply nested"):
        decoder.decode_message("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps", schema)


@hypothesis.given(st.binary(max_size=60), st.sampled_from(["Pod", "Service", "Event", "Secret", "Nothing"]))
def test_random_bytes_give_an_object_or_a_refusal(decoder: decoding.Decoder, data: bytes, kind: str) -> None:
    try:
        assert isinstance(decoder.decode(envelope("v1", kind, data)).object, dict)
    except errors.Invalid as refusal:
        assert str(refusal)
