"""Rules of config maps and secrets."""

from __future__ import annotations

import base64

from tests.conformance.http import Api
from tests.conformance.objects import config_map, core, secret


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_an_immutable_config_map_stays(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), {**config_map("a", {"k": "1"}), "immutable": True})
    target = core(ns, "configmaps", "a")
    status = (await api.patch(target, {"data": {"k": "2"}})).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "data"
    assert "field is immutable when `immutable` is set" in status["message"]
    (await api.patch(target, {"immutable": False})).fails(422, "Invalid")
    (await api.patch(target, {"metadata": {"labels": {"x": "1"}}})).expect(200)
    (await api.delete(target)).expect(200)


async def test_an_immutable_secret_stays(api: Api, ns: str) -> None:
    await api.create(core(ns, "secrets"), secret("s", stringData={"k": "1"}, immutable=True))
    (await api.patch(core(ns, "secrets", "s"), {"stringData": {"k": "2"}})).fails(422, "Invalid")


async def test_string_data_becomes_data(api: Api, ns: str) -> None:
    made = await api.create(
        core(ns, "secrets"), secret("s", data={"a": encoded("1"), "b": encoded("2")}, stringData={"b": "new"})
    )
    assert made["data"] == {"a": encoded("1"), "b": encoded("new")}
    assert "stringData" not in made
    assert made["type"] == "Opaque"
    patched = (await api.patch(core(ns, "secrets", "s"), {"stringData": {"c": "3"}})).expect(200)
    assert patched["data"]["c"] == encoded("3")


async def test_the_type_of_a_secret_is_immutable(api: Api, ns: str) -> None:
    await api.create(core(ns, "secrets"), secret("s"))
    status = (await api.patch(core(ns, "secrets", "s"), {"type": "example.com/other"})).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "type"


async def test_typed_secrets_need_their_keys(api: Api, ns: str) -> None:
    for kind, field in (
        ("kubernetes.io/tls", "data[tls.crt]"),
        ("kubernetes.io/dockerconfigjson", "data[.dockerconfigjson]"),
        ("kubernetes.io/basic-auth", "data[%s]"),
    ):
        status = (await api.post(core(ns, "secrets"), secret("s", type=kind))).fails(422, "Invalid")
        fields = {cause["field"] for cause in status["details"]["causes"]}
        assert field in fields or kind.endswith("basic-auth"), fields


async def test_keys_are_checked(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "configmaps"), config_map("a", {"not/valid": "1"}))).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "data[not/valid]"
    both = {**config_map("a", {"k": "1"}), "binaryData": {"k": encoded("1")}}
    status = (await api.post(core(ns, "configmaps"), both)).fails(422, "Invalid")
    assert "duplicate of key present in" in status["message"]


async def test_data_must_be_base64(api: Api, ns: str) -> None:
    (await api.post(core(ns, "secrets"), secret("s", data={"k": "not base64!"}))).fails(400, "BadRequest")


async def test_size_is_limited(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "configmaps"), config_map("a", {"k": "x" * (1024 * 1024 + 1)}))).fails(
        422, "Invalid"
    )
    assert status["details"]["causes"][0]["reason"] == "FieldValueTooLong"
    (await api.post(core(ns, "configmaps"), config_map("a", {"k": "x" * (1024 * 1024)}))).expect(201)


async def test_binary_data_is_kept(api: Api, ns: str) -> None:
    raw = base64.b64encode(bytes(range(256))).decode()
    made = await api.create(core(ns, "configmaps"), {**config_map("a"), "binaryData": {"k": raw}})
    assert made["binaryData"] == {"k": raw}
