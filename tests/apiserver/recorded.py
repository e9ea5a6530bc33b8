"""Cases whose answers were recorded from the real API server, and what our own code makes of them.

`cases/*.yaml` are the questions, written by hand; `cases/*.json` the answers. The recording (marker `real`) and the
check that needs no server both go through this module, so they ask the same.
"""

from __future__ import annotations

import copy
import json
import pathlib
import re
from collections.abc import Iterable
from typing import Any

import yaml

from bedplate.apiserver.crds import checks, custom
from bedplate.apiserver.status import FieldProblem

CASES = pathlib.Path(__file__).parent / "cases"
GROUP = "cases.example.com"
Answer = list[list[str]]
Object = dict[str, Any]


def questions(name: str) -> list[Object]:
    found: list[Object] = yaml.safe_load((CASES / f"{name}.yaml").read_text())
    return found


def answers(name: str) -> Object:
    found: Object = json.loads((CASES / f"{name}.json").read_text())
    return found


def record(name: str, found: Object) -> None:
    text = json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True)
    (CASES / f"{name}.json").write_text(text + "\n")


def definition(name: str, schema: Object) -> Object:
    """A sound cluster-scoped CustomResourceDefinition whose objects have a `spec` of that schema."""
    return build({"name": name, "properties": {"spec": schema}})


def build(question: Object) -> Object:
    """The CustomResourceDefinition that an entry of definitions.yaml describes."""
    question = copy.deepcopy(question)
    plain = {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}
    schema = question.get("schema") or {"type": "object", "properties": question.get("properties", plain)}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version = {key: value for key, value in (version | question.get("version", {})).items() if value is not None}
    plural = f"{question['name']}s"
    spec: Object = {"group": GROUP, "names": {"plural": plural, "kind": kind_of(question["name"])}, "scope": "Cluster"}
    spec = spec | {"versions": [version]} | question.get("spec", {})
    group = spec["group"] if question.get("retitle") else GROUP
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return head | {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}


def webhook_configuration(question: Object) -> Object:
    """The configuration that an entry of webhooks.yaml describes: a sound webhook with changes."""
    hook: Object = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://example.com/x"},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    changed = copy.deepcopy(hook | question.get("hook", {}))
    changed["rules"] = [rule | question.get("rule", {}) for rule in changed["rules"]]
    changed = {key: value for key, value in changed.items() if value is not None}
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": question["kind"], "metadata": {"name": "cases"}}
    return head | {"webhooks": [changed] * question.get("times", 1)}


def kind_of(name: str) -> str:
    return name.title().replace("-", "")


def with_rules(schema: Object, rules: Iterable[str]) -> Object:
    return schema | {"x-kubernetes-validations": [{"rule": rule} for rule in rules]}


def instance(kind: str, name: str, spec: Any) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": copy.deepcopy(spec)}


def normal(found: Iterable[Any]) -> Answer:
    """Causes in a fixed order, without what the server prints of its own structs and made-up type names."""
    rows = [_row(cause) for cause in found]
    return sorted([reason, field, _plain(message)] for reason, field, message in rows)


def _row(cause: Any) -> tuple[str, str, str]:
    if isinstance(cause, FieldProblem):
        return cause.reason, cause.field, cause.message
    return cause["reason"], cause["field"], cause["message"]


def _plain(message: str) -> str:
    message = re.sub(r"selfType\d+", "selfType", message)
    return re.sub(r"^Invalid value: \{.*\}: only \[", "Invalid value: {...}: only [", message)


def judge_definition(crd: Object) -> Answer:
    """Our verdict on a CustomResourceDefinition."""
    checks.default(crd)
    return normal(checks.validate(crd | {"status": {"storedVersions": ["v1"]}}))


def judge_object(schema: Object, spec: Any, old: Any = None) -> Answer:
    """Our verdict on an object whose definition's `spec` has that schema, or on an update of `old`."""
    validator = custom.CustomValidator({"type": "object", "properties": {"spec": schema}})
    now, before = instance("K", "a", spec), instance("K", "a", old) if old is not None else None
    for each in (now, before):
        if each is not None:
            validator.prune(each)
            validator.default(each)
    return normal(validator.validate(now, before))
