"""Webhook configurations: defaults, their rules, and which requests a webhook is for.

In: Validating- and MutatingWebhookConfigurations. Out: defaults filled in; causes in the server's words; `Hook` values
that say whether they want a request. Nothing is called here.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.apiserver import cel, selectors
from bedplate.apiserver.cel import types
from bedplate.apiserver.cel.types import Field, Type
from bedplate.apiserver.schema import causes, formats
from bedplate.apiserver.status import FieldProblem

__all__ = ["Hook", "Target", "compile_hooks", "default", "validate"]

Object = Mapping[str, Any]

_FORM = "; desired format: https://host[/path]"
_CHOICES = {
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Equivalent", "Exact"),
    "reinvocationPolicy": ("IfNeeded", "Never"),
}
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


def default(config: dict[str, Any]) -> None:
    """Fill in what a configuration may leave out."""
    is_mutating = config.get("kind") == "MutatingWebhookConfiguration"
    for hook in config.get("webhooks") or ():
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        hook.setdefault("timeoutSeconds", 10)
        if is_mutating:
            hook.setdefault("reinvocationPolicy", "Never")
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")
        service = (hook.get("clientConfig") or {}).get("service")
        if service:
            service.setdefault("port", 443)


def validate(config: Object) -> list[FieldProblem]:
    """All faults of a configuration."""
    faults: list[FieldProblem] = []
    seen: set[str] = set()
    for index, hook in enumerate(config.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        faults += [*_check_hook(hook, path), *_check_reviews(hook, f"{path}.admissionReviewVersions")]
        name = hook.get("name") or ""
        if name and name in seen:
            faults.append(causes.duplicate(f"{path}.name", name))
        seen.add(name)
    return faults


def _check_hook(hook: Object, path: str) -> Iterator[FieldProblem]:
    name = hook.get("name") or ""
    if not name:
        yield causes.required(f"{path}.name")
    elif faults := formats.dns1123_subdomain(name):
        yield causes.invalid(f"{path}.name", name, ",".join(faults))
    elif name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        yield causes.invalid(f"{path}.name", name, detail)
    for index, rule in enumerate(hook.get("rules") or ()):
        yield from _check_rule(rule, f"{path}.rules[{index}]")
    for key, allowed in _CHOICES.items():
        if hook.get(key) is not None and hook[key] not in allowed:
            yield causes.not_supported(f"{path}.{key}", hook[key], allowed)
    effects = hook.get("sideEffects")
    if effects is None:
        yield causes.required(f"{path}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    elif effects not in _SIDE_EFFECTS:
        yield causes.not_supported(f"{path}.sideEffects", effects, _SIDE_EFFECTS)
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        yield causes.invalid(f"{path}.timeoutSeconds", seconds, detail)
    yield from _check_client(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from _check_conditions(hook.get("matchConditions") or [], f"{path}.matchConditions")


def _check_rule(rule: Object, path: str) -> Iterator[FieldProblem]:
    operations = rule.get("operations") or []
    if not operations:
        yield causes.required(f"{path}.operations")
    if len(operations) > 1 and "*" in operations:
        detail = "if '*' is present, must not specify other operations"
        yield causes.invalid(f"{path}.operations", operations, detail)
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield causes.not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    for key, what in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        given = rule.get(key) or []
        if not given:
            yield causes.required(f"{path}.{key}")
        if len(given) > 1 and "*" in given:
            yield causes.invalid(f"{path}.{key}", given, f"if '*' is present, must not specify other {what}")
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            yield causes.required(f"{path}.apiVersions[{index}]")
    yield from _check_resources(rule.get("resources") or [], f"{path}.resources")
    scope = rule.get("scope")
    if scope is not None and scope not in ("*", "Cluster", "Namespaced"):
        yield causes.not_supported(f"{path}.scope", scope, ("*", "Cluster", "Namespaced"))


def _check_resources(resources: list[str], path: str) -> Iterator[FieldProblem]:
    if not resources:
        yield causes.required(path)
    any_sub: set[str] = set()
    any_resource: set[str] = set()
    for index, text in enumerate(resources):
        if not text:
            yield causes.required(f"{path}[{index}]")
            continue
        resource, mark, sub = text.partition("/")
        if not mark:
            continue
        for known, shown in ((resource in any_sub, f"{resource}/*"), (sub in any_resource, f"*/{sub}")):
            if known:
                yield causes.invalid(f"{path}[{index}]", text, f"if '{shown}' is present, must not specify {text}")
        if sub == "*":
            any_sub.add(resource)
        if resource == "*":
            any_resource.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        yield causes.invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and any("/" not in text and text not in ("", "*") for text in resources):
        detail = "if '*' is present, must not specify other resources without subresources"
        yield causes.invalid(path, resources, detail)


def _check_client(client: Object, path: str) -> Iterator[FieldProblem]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield causes.required(path, "exactly one of url or service is required")
    elif url is not None:
        parts = urllib.parse.urlsplit(url)
        where = f"{path}.url"
        if parts.scheme != "https":
            yield causes.invalid(where, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
        if not parts.netloc:
            yield causes.invalid(where, "", f"host must be specified{_FORM}")
        if "@" in parts.netloc:
            user = parts.netloc.rpartition("@")[0]
            yield causes.invalid(where, user, "user information is not permitted in the URL")
        if parts.fragment:
            yield causes.invalid(where, parts.fragment, "fragments are not permitted in the URL")
        if parts.query:
            yield causes.invalid(where, parts.query, "query parameters are not permitted in the URL")
    else:
        yield from _check_service(service or {}, f"{path}.service")


def _check_service(service: Object, path: str) -> Iterator[FieldProblem]:
    for key in ("name", "namespace"):
        if not service.get(key):
            yield causes.required(f"{path}.{key}")
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        yield causes.invalid(f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    yield from _check_path(service.get("path") or "", f"{path}.path")


def _check_path(url_path: str, path: str) -> Iterator[FieldProblem]:
    if url_path in ("", "/"):
        return
    if not url_path.startswith("/"):
        yield causes.invalid(path, url_path, "must start with a '/'")
    for index, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            yield causes.invalid(path, url_path, f"segment[{index}] may not be empty")
            continue
        for fault in formats.dns1123_subdomain(step):
            yield causes.invalid(path, url_path, f"segment[{index}]: {fault}")


def _check_reviews(hook: Object, path: str) -> Iterator[FieldProblem]:
    versions = hook.get("admissionReviewVersions") or []
    if not versions:
        yield causes.required(path, "must specify one of v1, v1beta1")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield causes.invalid(f"{path}[{index}]", version, "duplicate version")
            continue
        for fault in formats.dns1035_label(version):
            yield causes.invalid(f"{path}[{index}]", version, fault)
    if "v1" not in versions:
        detail = "must include at least one of v1, v1beta1"
        if "v1beta1" in versions:
            detail = "this API server sends v1 only"
        yield causes.invalid(path, versions, detail)


def _check_conditions(conditions: list[Any], path: str) -> Iterator[FieldProblem]:
    if len(conditions) > 64:
        yield causes.too_many(path, len(conditions), 64)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        where, text = f"{path}[{index}]", (condition.get("expression") or "").strip()
        if not text:
            yield causes.required(f"{where}.expression")
        else:
            try:
                result = cel.compile_expression(text, CONDITION_VARIABLES).result
                if result.kind not in ("bool", "dyn"):
                    detail = f"must evaluate to bool but got {result}"
                    yield causes.invalid(f"{where}.expression", text, detail)
            except cel.CompileError as error:
                yield causes.invalid(f"{where}.expression", text, f"compilation failed: {error}")
        name = condition.get("name") or ""
        if not name:
            yield causes.required(f"{where}.name")
        else:
            for fault in formats.qualified_name(name):
                yield causes.invalid(f"{where}.name", name, fault)
            if name in seen:
                yield causes.duplicate(f"{where}.name", name)
            seen.add(name)


def _struct(type_name: str, /, **fields: Type) -> Type:
    return Type("object", type_name, fields={key: Field(key, kind) for key, kind in fields.items()})


def _request_type() -> Type:
    text = types.STRING
    kind = _struct("kubernetes.GroupVersionKind", group=text, version=text, kind=text)
    resource = _struct("kubernetes.GroupVersionResource", group=text, version=text, resource=text)
    user = _struct(
        "kubernetes.UserInfo",
        username=text,
        uid=text,
        groups=types.list_of(text),
        extra=types.map_of(text, types.list_of(text)),
    )
    return _struct(
        "kubernetes.AdmissionRequest",
        kind=kind,
        resource=resource,
        subResource=text,
        requestKind=kind,
        requestResource=resource,
        requestSubResource=text,
        name=text,
        namespace=text,
        operation=text,
        userInfo=user,
        dryRun=types.BOOL,
        options=types.DYN,
    )


CONDITION_VARIABLES = {"object": types.DYN, "oldObject": types.DYN, "request": _request_type()}


@dataclass(frozen=True, slots=True)
class Target:
    """The part of a request that rules speak of."""

    operation: str
    group: str
    version: str
    resource: str
    subresource: str
    is_namespaced: bool


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """One webhook of one configuration."""

    name: str
    configuration: str
    text: Object
    namespaces: selectors.LabelPredicate
    objects: selectors.LabelPredicate
    conditions: tuple[cel.Expression, ...]

    @property
    def is_ignoring(self) -> bool:
        return self.text.get("failurePolicy") == "Ignore"

    @property
    def is_equivalent(self) -> bool:
        return self.text.get("matchPolicy") != "Exact"

    @property
    def is_reinvocable(self) -> bool:
        return self.text.get("reinvocationPolicy") == "IfNeeded"

    @property
    def timeout_s(self) -> int:
        return int(self.text.get("timeoutSeconds") or 10)

    def matches(self, target: Target) -> bool:
        return any(_rule_matches(rule, target) for rule in self.text.get("rules") or ())


def _rule_matches(rule: Object, target: Target) -> bool:
    scope = rule.get("scope") or "*"
    return (
        (scope == "*" or (scope == "Namespaced") == target.is_namespaced)
        and _listed(rule.get("operations"), target.operation)
        and _listed(rule.get("apiGroups"), target.group)
        and _listed(rule.get("apiVersions"), target.version)
        and any(_resource_matches(text, target) for text in rule.get("resources") or ())
    )


def _listed(given: Any, value: str) -> bool:
    return bool(given) and ("*" in given or value in given)


def _resource_matches(text: str, target: Target) -> bool:
    resource, _, sub = text.partition("/")
    return resource in ("*", target.resource) and (sub == target.subresource or sub == "*")


def compile_hooks(config: Object) -> list[Hook]:
    """The webhooks of a configuration, in its order. It has been validated."""
    compiled = []
    for text in config.get("webhooks") or ():
        conditions = [
            cel.compile_expression(each["expression"].strip(), CONDITION_VARIABLES)
            for each in text.get("matchConditions") or ()
        ]
        compiled.append(
            Hook(
                text["name"],
                config["metadata"]["name"],
                text,
                selectors.of_label_selector(text.get("namespaceSelector") or {}),
                selectors.of_label_selector(text.get("objectSelector") or {}),
                tuple(conditions),
            )
        )
    return compiled
