"""CEL rules of custom kinds: messages, transitions, libraries, and rules that do not compile."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance import objects
from tests.conformance.http import Api, Json
from tests.conformance.objects import CRDS, crd, install, spec_schema

PROPERTIES: Json = {
    "min": {"type": "integer"},
    "max": {"type": "integer"},
    "text": {"type": "string", "maxLength": 200},
    "other": {"type": "string", "maxLength": 200},
    "items": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 50}},
    "map": {"type": "object", "maxProperties": 10, "additionalProperties": {"type": "string", "maxLength": 50}},
    "when": {"type": "string", "format": "date-time"},
    "wait": {"type": "string", "format": "duration"},
    "port": {"x-kubernetes-int-or-string": True, "maxLength": 20},
    "parts": {
        "type": "array",
        "maxItems": 10,
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 20}, "size": {"type": "integer"}},
        },
    },
    "dash-ed": {"type": "string", "maxLength": 10},
}


async def with_rule(api: Api, rule: str, **more: Any) -> objects.CustomKind:
    return await install(api, spec_schema(PROPERTIES, **{"x-kubernetes-validations": [{"rule": rule, **more}]}))


async def refusal(api: Api, ns: str, kind: objects.CustomKind, spec: Json) -> Json:
    """The first cause of the refusal of an object with this spec."""
    status = (await api.post(kind.path(ns), kind.new("w", spec=spec))).fails(422, "Invalid")
    return status["details"]["causes"][0]


async def test_a_rule_refuses_and_accepts(api: Api, ns: str) -> None:
    kind = await with_rule(api, "self.min <= self.max")
    cause = await refusal(api, ns, kind, {"min": 2, "max": 1})
    assert cause["reason"] == "FieldValueInvalid"
    assert cause["field"] == "spec"
    assert "failed rule: self.min <= self.max" in cause["message"]
    await api.create(kind.path(ns), kind.new("w", spec={"min": 1, "max": 2}))
    (await api.patch(kind.path(ns, "w"), {"spec": {"min": 5}})).fails(422, "Invalid")


async def test_message_replaces_the_rule_text(api: Api, ns: str) -> None:
    kind = await with_rule(api, "self.min <= self.max", message="min must not exceed max")
    cause = await refusal(api, ns, kind, {"min": 2, "max": 1})
    assert cause["message"].endswith("min must not exceed max")
    assert "failed rule" not in cause["message"]


async def test_message_expression_is_evaluated(api: Api, ns: str) -> None:
    kind = await with_rule(api, "self.min <= self.max", messageExpression="'limits of ' + self.text + ' are wrong'")
    assert (await refusal(api, ns, kind, {"min": 7, "max": 3, "text": "x"}))["message"].endswith(
        "limits of x are wrong"
    )


async def test_reason_and_field_path_are_reported(api: Api, ns: str) -> None:
    kind = await with_rule(api, "self.min >= 0", reason="FieldValueForbidden", fieldPath=".min", message="no")
    cause = await refusal(api, ns, kind, {"min": -1})
    assert cause == {"reason": "FieldValueForbidden", "message": "Forbidden: no", "field": "spec.min"}


async def test_a_transition_rule_holds_for_updates_only(api: Api, ns: str) -> None:
    kind = await with_rule(api, "self.text == oldSelf.text", message="text is immutable")
    await api.create(kind.path(ns), kind.new("w", spec={"text": "a"}))
    status = (await api.patch(kind.path(ns, "w"), {"spec": {"text": "b"}})).fails(422, "Invalid")
    assert "text is immutable" in status["message"]
    (await api.patch(kind.path(ns, "w"), {"spec": {"min": 1}})).expect(200)


async def test_optional_old_self_runs_on_creation_too(api: Api, ns: str) -> None:
    rule = "oldSelf.hasValue() ? self.min >= oldSelf.value().min : self.min == 0"
    kind = await with_rule(api, rule, optionalOldSelf=True)
    assert await refusal(api, ns, kind, {"min": 3})
    await api.create(kind.path(ns), kind.new("w", spec={"min": 0}))
    (await api.patch(kind.path(ns, "w"), {"spec": {"min": 4}})).expect(200)
    (await api.patch(kind.path(ns, "w"), {"spec": {"min": 3}})).fails(422, "Invalid")


async def test_a_rule_on_a_list_element_names_its_position(api: Api, ns: str) -> None:
    item = {
        "type": "object",
        "properties": {"size": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.size > 0", "message": "too small"}],
    }
    kind = await install(api, spec_schema({"list": {"type": "array", "maxItems": 5, "items": item}}))
    cause = await refusal(api, ns, kind, {"list": [{"size": 1}, {"size": 0}]})
    assert cause["field"] == "spec.list[1]"


async def test_a_rule_at_the_root_sees_metadata_name(api: Api, ns: str) -> None:
    schema = spec_schema(PROPERTIES)
    schema["x-kubernetes-validations"] = [{"rule": "self.metadata.name.startsWith('good')", "message": "bad name"}]
    kind = await install(api, schema)
    status = (await api.post(kind.path(ns), kind.new("evil"))).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "<nil>"
    await api.create(kind.path(ns), kind.new("good-one"))


async def test_a_rule_that_fails_to_evaluate_refuses(api: Api, ns: str) -> None:
    kind = await with_rule(api, "self.min <= self.max")
    cause = await refusal(api, ns, kind, {"min": 1})
    assert "no such key: max" in cause["message"]


async def test_all_broken_rules_are_reported(api: Api, ns: str) -> None:
    rules = [{"rule": "self.min > 0", "message": "one"}, {"rule": "self.max > 0", "message": "two"}]
    kind = await install(api, spec_schema(PROPERTIES, **{"x-kubernetes-validations": rules}))
    status = (await api.post(kind.path(ns), kind.new("w", spec={"min": 0, "max": 0}))).fails(422, "Invalid")
    assert len(status["details"]["causes"]) == 2


LIBRARY = [
    ("self.text.matches('^[a-z]+$')", {"text": "abc"}, {"text": "ABC"}),
    ("quantity(self.text).isLessThan(quantity('1Gi'))", {"text": "500Mi"}, {"text": "2Gi"}),
    ("isQuantity(self.text) && quantity(self.text).compareTo(quantity('1k')) == 0", {"text": "1000"}, {"text": "1001"}),
    ("ip(self.text).family() == 4", {"text": "10.0.0.1"}, {"text": "::1"}),
    ("isIP(self.text)", {"text": "fe80::1"}, {"text": "300.1.1.1"}),
    ("cidr('10.0.0.0/8').containsIP(ip(self.text))", {"text": "10.1.2.3"}, {"text": "11.1.2.3"}),
    ("isCIDR(self.text) && cidr(self.text).prefixLength() == 24", {"text": "10.0.0.0/24"}, {"text": "10.0.0.0/16"}),
    ("url(self.text).getScheme() == 'https' && url(self.text).getHost() == 'a.example:8443'",
     {"text": "https://a.example:8443/x?y=1"}, {"text": "http://a.example:8443/x"}),
    ("isURL(self.text)", {"text": "https://x.example/"}, {"text": "../no"}),
    ("self.text.find('[0-9]+') == '42'", {"text": "ab42cd7"}, {"text": "ab7"}),
    ("self.text.findAll('[0-9]+') == ['1', '2']", {"text": "a1b2"}, {"text": "a1b3"}),
    ("self.items.isSorted()", {"items": ["a", "b"]}, {"items": ["b", "a"]}),
    ("self.items.indexOf('b') == 1", {"items": ["a", "b"]}, {"items": ["b", "a"]}),
    ("self.parts.map(p, p.size).sum() == 3", {"parts": [{"size": 1}, {"size": 2}]}, {"parts": [{"size": 1}]}),
    ("self.parts.map(p, p.size).max() < 10", {"parts": [{"size": 9}]}, {"parts": [{"size": 10}]}),
    ("self.items.all(i, i.startsWith('x'))", {"items": ["xa", "xb"]}, {"items": ["xa", "b"]}),
    ("self.items.exists_one(i, i == 'x')", {"items": ["x", "y"]}, {"items": ["x", "x"]}),
    ("self.items.filter(i, i.size() > 2).size() == 1", {"items": ["abc", "a"]}, {"items": ["a"]}),
    ("has(self.text) || has(self.other)", {"other": "x"}, {"min": 1}),
    ("'k' in self.map && self.map['k'] == 'v'", {"map": {"k": "v"}}, {"map": {"j": "v"}}),
    ("self.map.all(k, k.size() == 1)", {"map": {"a": "1"}}, {"map": {"aa": "1"}}),
    ("self.when > timestamp('2020-01-01T00:00:00Z')",
     {"when": "2021-01-01T00:00:00Z"}, {"when": "2019-01-01T00:00:00Z"}),
    ("self.wait <= duration('1h')", {"wait": "30m"}, {"wait": "90m"}),
    ("type(self.port) == int ? self.port < 1000 : self.port == 'http'", {"port": "http"}, {"port": 2000}),
    ("self.text.lowerAscii() == 'abc' && self.text.split('B').size() == 2", {"text": "ABC"}, {"text": "abd"}),
    ("self.text.replace('a', 'b').trim() == 'bb'", {"text": " aa "}, {"text": "aac"}),
    ("self.text.substring(1, 3) == 'bc' && self.text.charAt(0) == 'a'", {"text": "abcd"}, {"text": "xbcd"}),
    ("self.items.join(',') == 'a,b'", {"items": ["a", "b"]}, {"items": ["ab"]}),
    ("!format.dns1123Label().validate(self.text).hasValue()", {"text": "abc"}, {"text": "A_b"}),
    ("isSemver(self.text) && semver(self.text).isGreaterThan(semver('1.2.3'))", {"text": "1.3.0"}, {"text": "1.2.0"}),
    ("self.?text.orValue('none') == 'none'", {"min": 1}, {"text": "some"}),
    ("sets.contains(self.items, ['a', 'b'])", {"items": ["b", "c", "a"]}, {"items": ["a"]}),
    ("self.min / 2 == 3 && self.min % 2 == 1", {"min": 7}, {"min": 6}),
    ("double(self.min) / 2.0 == 3.5", {"min": 7}, {"min": 8}),
]  # fmt: skip


async def library(api: Api) -> objects.CustomKind:
    """One kind with a field of its own for every rule of the table."""
    fields = {
        f"r{number}": {"type": "object", "properties": PROPERTIES, "x-kubernetes-validations": [{"rule": rule}]}
        for number, (rule, _, _) in enumerate(LIBRARY)
    }
    return await install(api, spec_schema(fields))


@pytest.mark.parametrize("number", range(len(LIBRARY)), ids=[rule for rule, _, _ in LIBRARY])
async def test_library(api: Api, ns: str, number: int) -> None:
    kind = await library(api)
    rule, good, bad = LIBRARY[number]
    await api.create(kind.path(ns), kind.new("good", spec={f"r{number}": good}))
    cause = await refusal(api, ns, kind, {f"r{number}": bad})
    assert cause["field"] == f"spec.r{number}"
    assert f"failed rule: {rule}" in cause["message"]


async def test_property_names_that_are_no_identifiers_are_escaped(api: Api, ns: str) -> None:
    kind = await with_rule(api, "self.dash__dash__ed == 'x'")
    await api.create(kind.path(ns), kind.new("w", spec={"dash-ed": "x"}))
    assert await refusal(api, ns, kind, {"dash-ed": "y"})


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("self.min <=", "Syntax error"),
        ("self.nothing == 1", "undefined field 'nothing'"),
        ("self.min", "must evaluate to a bool"),
        ("self.text > 5", "no matching overload"),
        ("unknown(self.text)", "undeclared reference to 'unknown'"),
    ],
)
async def test_a_rule_that_does_not_compile_is_refused_with_the_definition(api: Api, rule: str, complaint: str) -> None:
    schema = spec_schema(PROPERTIES, **{"x-kubernetes-validations": [{"rule": rule}]})
    status = (await api.post(CRDS, crd(schema))).fails(422, "Invalid")
    assert complaint in status["message"]
    assert "x-kubernetes-validations[0].rule" in status["details"]["causes"][0]["field"]


async def test_a_rule_that_may_cost_too_much_is_refused(api: Api) -> None:
    items = {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
    rule = {"rule": "self.items.all(a, self.items.all(b, a.all(x, b.all(y, x == y))))"}
    status = (await api.post(CRDS, crd(spec_schema({"items": items}, **{"x-kubernetes-validations": [rule]})))).fails(
        422, "Invalid"
    )
    assert "estimated rule cost exceeds budget" in status["message"]


async def test_a_message_expression_must_be_a_string(api: Api) -> None:
    rule = {"rule": "self.min > 0", "messageExpression": "self.min"}
    status = (await api.post(CRDS, crd(spec_schema(PROPERTIES, **{"x-kubernetes-validations": [rule]})))).fails(
        422, "Invalid"
    )
    assert "messageExpression must evaluate to a string" in status["message"]
