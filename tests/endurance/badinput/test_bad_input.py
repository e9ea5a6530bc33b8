"""Bytes no well-meaning client would send: the server refuses them as such, stays alive, and logs no traceback."""

from __future__ import annotations

import json

import pytest
from tests.endurance import running
from tests.endurance.badinput.conftest import CONFIGMAPS, configmap, refusal

MALFORMED = [
    b"{",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"{}",
    b"\x00",
    b"\xff\xfe\xfd",
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"\xff\xfe"}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a\\u0000b"}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"\\ud800"}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":7}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":[]}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":7}}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","ownerReferences":{}}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","ownerReferences":[7]}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","ownerReferences":[{"uid":7}]}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","finalizers":"a"}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","finalizers":[{}]}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","deletionTimestamp":{}}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":[]}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":7}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"binaryData":{"a":"%%%"}}',
    b'{"apiVersion":7,"kind":"ConfigMap","metadata":{"name":"x"}}',
    b'{"apiVersion":"v1","kind":[],"metadata":{"name":"x"}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"immutable":"yes"}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","generateName":7}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","creationTimestamp":"yesterday"}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"' + b"x" * 254 + b'"}}',
    b'{"a":' * 100 + b"1",
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","generation":' + b"9" * 5000 + b"}}",
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
@pytest.mark.parametrize("media", ["application/json", "application/yaml"])
def test_a_malformed_body_is_a_bad_request(server: running.Embedded, body: bytes, media: str) -> None:
    refusal(server.request("POST", CONFIGMAPS, body, media), 400, 422)


@pytest.mark.parametrize("media", ["application/json", "application/yaml"])
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"- " * 1 + b"["])
def test_ten_thousand_levels_of_nesting_are_refused(server: running.Embedded, media: str, opening: bytes) -> None:
    refusal(server.request("POST", CONFIGMAPS, opening * 10_000, media), 400, 413, 422)
    deep = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"x":' + opening * 10_000
    refusal(server.request("POST", CONFIGMAPS, deep, media), 400, 413, 422)


@pytest.mark.parametrize("levels", [400, 900, 1000, 3000, 10_000])
def test_well_formed_deep_nesting_never_crashes_the_server(server: running.Embedded, levels: int) -> None:
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    schema = b'{"properties":{"a":' * levels + b'{"type":"string"}' + b"}}" * levels
    deep = (
        b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"deeps.x.org"},'
        b'"spec":{"group":"x.org","scope":"Namespaced","names":{"plural":"deeps","kind":"Deep"},"versions":[{"name":"v1","served":true,'
        b'"storage":true,"schema":{"openAPIV3Schema":' + schema + b"}}]}}"
    )
    refusal(server.request("POST", crd, deep), 400, 413, 422)
    nested = b'{"f:a":' * levels + b"{}" + b"}" * levels
    body = (
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep-%d","managedFields":[{"manager":"m","operation":"Update",'
        b'"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":%b}]}}' % (levels, nested)
    )
    code, answer = server.request("POST", CONFIGMAPS, body)
    assert code in (201, 400, 422), answer[:500]
    unknown = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"u-%d"},"x":%b}' % (
        levels, b'{"a":' * levels + b"1" + b"}" * levels,
    )  # fmt: skip
    code, answer = server.request("POST", CONFIGMAPS, unknown)
    assert code in (201, 400, 422), answer[:500]
    patch = b'{"data":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"
    server.request("POST", CONFIGMAPS, configmap("deep-target"))
    for media in ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"):
        path = f"{CONFIGMAPS}/deep-target?fieldManager=f"
        refusal(server.request("PATCH", path, patch, f"application/{media}"), 400, 413, 422, 500)


def test_a_yaml_bomb_is_refused_without_growing_the_server(server: running.Embedded) -> None:
    lines = [b"apiVersion: v1", b"kind: ConfigMap", b"metadata: {name: bomb}", b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [b"a%d: &a%d [%b]" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12)]
    before = server.rss_mb
    refusal(server.request("POST", CONFIGMAPS, b"\n".join(lines), "application/yaml"), 400, 413, 422)
    path = f"{CONFIGMAPS}/bomb?fieldManager=f"
    refusal(server.request("PATCH", path, b"\n".join(lines), "application/apply-patch+yaml"), 400, 413, 422)
    assert server.rss_mb < before + 100


def test_null_in_a_list_is_an_empty_element(server: running.Embedded) -> None:
    """As Go reads it: an empty finalizer is refused as such, an empty taint crashes nothing."""
    body = {"metadata": {"name": "nulls", "finalizers": [None]}}
    refusal(server.request("POST", CONFIGMAPS, body), 422)
    code, answer = server.request("POST", "/api/v1/nodes", {"metadata": {"name": "nulls"}, "spec": {"taints": [None]}})
    assert code in (201, 400, 422), answer[:300]


@pytest.mark.parametrize("spec", [[None], -1, "x"])
def test_a_namespace_is_not_finalized_by_nonsense(server: running.Embedded, spec: object) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}, "spec": spec}
    refusal(server.request("PUT", "/api/v1/namespaces/default/finalize", body), 400)


def test_a_huge_body_is_too_large(server: running.Embedded) -> None:
    body = json.dumps(configmap("huge", data={"x": "y" * (4 << 20)})).encode()
    refusal(server.request("POST", CONFIGMAPS, body), 413)


def test_an_object_of_more_than_the_stores_limit_is_refused(server: running.Embedded) -> None:
    body = configmap("fat", data={"x": "y" * (1 << 20) + "y"})
    refusal(server.request("POST", CONFIGMAPS, body), 413, 422)


NAMES = [
    "..",
    ".",
    "a/../b",
    "%2e%2e",
    "..%2f..%2fetc",
    "a%00b",
    "%ff%fe",
    "a%0d%0aX: y",
    "%F0%9F%98%80",
    "A",
    "-",
    "~",
    "a%2fb",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_no_name_leads_out_of_its_place(server: running.Embedded, name: str, method: str) -> None:
    body = b"" if method in ("GET", "DELETE") else json.dumps(configmap(name)).encode()
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    code, answer = server.request(method, f"{CONFIGMAPS}/{name}", body, media)
    assert code in (301, 400, 404, 405, 422), (code, answer[:300])


@pytest.mark.parametrize("name", ["..", "a/b", "a\x00b", "a\nb", "", " ", "A", "-a", "a" * 254, "é", "a%2fb", "a..b"])
def test_no_object_gets_such_a_name(server: running.Embedded, name: str) -> None:
    refusal(server.request("POST", CONFIGMAPS, configmap(name)), 400, 422)
    refusal(server.request("POST", CONFIGMAPS, configmap("", x=1)), 400, 422)


QUERIES = [
    ("limit=-1", (200, 400)),
    ("limit=99999999999999999999", (400,)),
    ("limit=abc", (400,)),
    ("limit=1&continue=abc", (400,)),
    ("limit=1&continue=%ff%fe", (400,)),
    ("limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTUsInN0YXJ0IjoiIn0", (400,)),
    ("resourceVersion=-1", (400,)),
    ("resourceVersion=abc", (400,)),
    ("resourceVersion=99999999999999999999999999", (400, 504)),
    ("resourceVersion=%C2%B2", (400,)),
    ("resourceVersion=%D9%A3", (400,)),
    ("resourceVersion=1&resourceVersionMatch=Nonsense", (422,)),
    ("resourceVersionMatch=Exact", (422,)),
    ("labelSelector=%28%28", (400,)),
    ("labelSelector=a+in+%28", (400,)),
    ("labelSelector=a%00", (400,)),
    ("fieldSelector=nonsense%3Dx", (400,)),
    ("fieldSelector=%3D%3D%3D", (400,)),
    ("watch=1&resourceVersion=abc", (400,)),
    ("watch=1&timeoutSeconds=abc", (400,)),
    ("watch=1&sendInitialEvents=true", (422,)),
    ("watch=1&resourceVersionMatch=Exact", (422,)),
    ("timeoutSeconds=-9223372036854775809", (400,)),
    ("dryRun=Some", (200,)),
    ("&&&===%%%", (200, 400)),
]


@pytest.mark.parametrize(("query", "codes"), QUERIES)
def test_nonsense_in_the_query_is_a_bad_request(server: running.Embedded, query: str, codes: tuple[int, ...]) -> None:
    code, body = server.request("GET", f"{CONFIGMAPS}?{query}")
    assert code in codes, (code, body[:300])


def test_a_watch_for_no_time_at_all_ends(server: running.Embedded) -> None:
    code, _ = server.request("GET", f"{CONFIGMAPS}?watch=1&timeoutSeconds=1")
    assert code == 200


@pytest.mark.parametrize(
    "path",
    ["//", "/api//v1/pods", "/api/v1/namespaces//pods", "/api/v1/namespaces/default/configmaps/x/y/z/a", "/apis/////",
     "/%2e%2e/%2e%2e/etc/passwd", "/../../etc/passwd", "/openapi/v3/../../x", "/openapi/v3/apis/%00", "*", "http://other/api"],
)  # fmt: skip
def test_nonsense_paths_are_not_found(server: running.Embedded, path: str) -> None:
    code, _ = server.request("GET", path)
    assert code in (200, 301, 400, 404, 405), code


PATCHES: list[tuple[str, bytes]] = [
    ("json-patch+json", b"{}"),
    ("json-patch+json", b"[7]"),
    ("json-patch+json", b'[{"op":"add"}]'),
    ("json-patch+json", b'[{"op":"fly","path":"/a"}]'),
    ("json-patch+json", b'[{"op":"add","path":"nonsense","value":1}]'),
    ("json-patch+json", b'[{"op":"add","path":"/metadata/labels/0/1/2","value":1}]'),
    ("json-patch+json", b'[{"op":"remove","path":""}]'),
    ("json-patch+json", b'[{"op":"replace","path":"","value":7}]'),
    ("json-patch+json", b'[{"op":"copy","from":"","path":"/data"}]'),
    ("json-patch+json", b'[{"op":"move","from":"/metadata","path":"/metadata/x"}]'),
    ("json-patch+json", b'[{"op":"test","path":"/a","value":1}]'),
    ("json-patch+json", b'[{"op":7,"path":[],"value":1}]'),
    ("merge-patch+json", b"[]"),
    ("merge-patch+json", b"7"),
    ("merge-patch+json", b'{"metadata":7}'),
    ("merge-patch+json", b'{"metadata":{"name":"other"}}'),
    ("merge-patch+json", b'{"kind":"Secret"}'),
    ("merge-patch+json", b'{"data":7}'),
    ("strategic-merge-patch+json", b"[]"),
    ("strategic-merge-patch+json", b'{"metadata":{"$patch":"nonsense"}}'),
    ("strategic-merge-patch+json", b'{"metadata":{"$retainKeys":7}}'),
    ("strategic-merge-patch+json", b'{"metadata":{"$setElementOrder/finalizers":7}}'),
    ("strategic-merge-patch+json", b'{"metadata":{"ownerReferences":[7]}}'),
    ("strategic-merge-patch+json", b'{"metadata":{"ownerReferences":[{"uid":[]}]}}'),
    ("apply-patch+yaml", b"a: [unclosed"),
    ("apply-patch+yaml", b"&a [*a]"),
    ("apply-patch+yaml", b"!!python/object/apply:os.system ['true']"),
    ("apply-patch+yaml", b"7"),
    ("apply-patch+yaml", b"{}"),
    ("apply-patch+yaml", b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: patched, managedFields: [{}]}\n"),
    ("nonsense+json", b"{}"),
]


@pytest.mark.parametrize(("media", "body"), PATCHES)
def test_a_nonsensical_patch_is_refused(server: running.Embedded, media: str, body: bytes) -> None:
    server.request("POST", CONFIGMAPS, configmap("patched", data={"a": "b"}))
    code, answer = server.request("PATCH", f"{CONFIGMAPS}/patched?fieldManager=f", body, f"application/{media}")
    # Go's strategic merge has errors of its own, which the real server answers with 500 and no reason.
    assert 400 <= code <= 500, (code, answer[:400])
    assert json.loads(answer).get("reason") != "InternalError", answer[:400]


def test_a_patch_of_a_subresource_leaves_an_object(server: running.Embedded) -> None:
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = {"request": "LS0=", "signerName": "example.com/x", "usages": ["client auth"]}
    server.request("POST", requests, {"metadata": {"name": "patched"}, "spec": spec})
    for value in ("[null]", "7"):
        body = f'[{{"op":"replace","path":"","value":{value}}}]'.encode()
        code, answer = server.request("PATCH", f"{requests}/patched/approval", body, "application/json-patch+json")
        assert 400 <= code < 500, (code, answer[:400])


PROTOBUFS = [
    b"",
    b"k8s\x00",
    b"k8s\x00\xff\xff\xff\xff\xff\xff",
    b"nonsense",
    b"k8s\x00\x0a\x05",
    b"k8s\x00" + b"\x0a\x80" * 500,
]


@pytest.mark.parametrize("body", PROTOBUFS)
def test_broken_protobuf_is_a_bad_request(server: running.Embedded, body: bytes) -> None:
    refusal(server.request("POST", CONFIGMAPS, body, "application/vnd.kubernetes.protobuf"), 400, 415, 422)
