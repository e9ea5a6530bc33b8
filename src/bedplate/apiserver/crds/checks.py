"""The rules for a CustomResourceDefinition as a whole: names, versions, subresources, columns, conversion.

In: a definition, on update the old one too. Out: defaults filled in, or causes in the server's words. The server keeps
what all versions have in common once, at the top; that shows in its paths (`spec.validation…` rather than
`spec.versions[0].schema…`). Schemas are judged by `schema_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.apiserver.crds import schema_checks, validations
from bedplate.apiserver.schema import causes, formats
from bedplate.apiserver.status import FieldProblem

__all__ = ["default", "has_condition", "unrecognized_formats", "validate"]

Object = Mapping[str, Any]

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE = 8
_APPROVAL = "api-approved.kubernetes.io"
_APPROVAL_REASON = (
    f'protected groups must have approval annotation "{_APPROVAL}", '
    "see https://github.com/kubernetes/enhancements/pull/1111"
)


def default(crd: dict[str, Any]) -> None:
    """Fill in what a definition may leave out."""
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        return
    names = spec.get("names")
    if isinstance(names, dict) and names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")
    conversion = spec.get("conversion")
    if not conversion:
        spec["conversion"] = {"strategy": "None"}
    elif service := ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service"):
        service.setdefault("port", 443)


def has_condition(crd: Object, kind: str) -> bool:
    """Whether a condition is True."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)


def validate(crd: Object, old: Object | None = None) -> list[FieldProblem]:
    """All faults of a definition; `old` is what an update replaces."""
    spec: Object = crd.get("spec") or {}
    names: Object = spec.get("names") or {}
    faults: list[FieldProblem] = []
    if old is None:
        name = crd["metadata"].get("name", "")
        if name != f"{names.get('plural', '')}.{spec.get('group', '')}":
            faults.append(causes.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    faults += [*_check_group(spec), *_check_scope(spec), *_check_versions(spec, old), *_check_names(names)]
    faults += _check_conversion(spec)
    if old is not None:
        faults += _check_unchanged(spec, old)
    faults += _check_stored(crd, spec)
    faults += _check_approval(crd, spec, old)
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        faults.append(causes.invalid("spec.preserveUnknownFields", True, detail))
    return faults


def _check_group(spec: Object) -> Iterator[FieldProblem]:
    group = spec.get("group") or ""
    if not group:
        yield causes.required("spec.group")
    elif faults := formats.dns1123_subdomain(group):
        yield causes.invalid("spec.group", group, ",".join(faults))
    elif "." not in group:
        yield causes.invalid("spec.group", group, "should be a domain with at least one dot")


def _check_scope(spec: Object) -> Iterator[FieldProblem]:
    scope = spec.get("scope") or ""
    if not scope:
        yield causes.required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield causes.not_supported("spec.scope", scope, ("Cluster", "Namespaced"))


def _shared(versions: list[Any], key: str) -> bool:
    """Whether all versions say the same, so that the server keeps it at the top."""
    return bool(versions) and all(version.get(key) == versions[0].get(key) for version in versions)


def _check_versions(spec: Object, old: Object | None) -> Iterator[FieldProblem]:
    versions: list[Any] = spec.get("versions") or []
    # What has been accepted once is not judged again: an update of something else stays possible, and cheap.
    accepted = [_schema_part(version) for version in ((old or {}).get("spec") or {}).get("versions") or ()]
    for index, version in enumerate(versions):
        if (version.get("schema") or {}).get("openAPIV3Schema") is None:
            yield causes.required(f"spec.versions[{index}].schema.openAPIV3Schema")
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        if faults := formats.dns1035_label(version.get("name") or ""):
            yield causes.invalid(f"{path}.name", version.get("name") or "", ",".join(faults))
        yield from _check_deprecation(version, path)
        for key, check in _PER_VERSION.items():
            if not _shared(versions, key) and not (key == "schema" and _schema_part(version) in accepted):
                yield from check(version, f"{path}.{key}")
    names = [version.get("name") for version in versions]
    if len(set(names)) != len(names):
        yield causes.invalid("spec.versions", versions, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield causes.invalid("spec.versions", versions, "must have exactly one version marked as storage version")
    tops = {"schema": "validation"}
    for key, check in _PER_VERSION.items():
        if _shared(versions, key) and not (key == "schema" and _schema_part(versions[0]) in accepted):
            yield from check(versions[0], f"spec.{tops.get(key, key)}")


def _schema_part(version: Object) -> tuple[Any, bool]:
    """All that the verdict on a version's schema depends on."""
    return version.get("schema"), (version.get("subresources") or {}).get("status") is not None


def unrecognized_formats(crd: Object) -> list[str]:
    """String formats in a definition's schemas that nothing is checked by; each once, in order."""
    names: dict[str, None] = {}

    def walk(schema: Any) -> None:
        if isinstance(schema, Mapping):
            name = str(schema.get("format") or "")
            is_text = schema.get("type") == "string" and name
            if is_text and formats.normalize(name) not in formats.CHECKS:
                names[name] = None
            for key, sub in schema.items():
                if key not in ("default", "enum", "example", "x-kubernetes-validations"):
                    walk(sub)
        elif isinstance(schema, list):
            for sub in schema:
                walk(sub)

    for version in (crd.get("spec") or {}).get("versions") or ():
        walk((version.get("schema") or {}).get("openAPIV3Schema"))
    return list(names)


def _check_deprecation(version: Object, path: str) -> Iterator[FieldProblem]:
    text, where = version.get("deprecationWarning"), f"{path}.deprecationWarning"
    if text is None:
        return
    if not version.get("deprecated"):
        yield causes.invalid(where, text, "can only be set for deprecated versions")
        return
    if len(text.encode()) > 256:
        yield causes.invalid(where, text, "must be <= 256 characters long")
    if not text:
        yield causes.invalid(where, text, "must not be an empty string")
    for at, letter in enumerate(text):
        if not letter.isprintable():
            detail = f"must only contain printable UTF-8 characters; non-printable character found at index {at}"
            yield causes.invalid(where, text, detail)
            break


def _check_schema(version: Object, path: str) -> Iterator[FieldProblem]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is not None:
        has_status = (version.get("subresources") or {}).get("status") is not None
        yield from schema_checks.check_schema(schema, f"{path}.openAPIV3Schema", has_status=has_status)


def _check_subresources(version: Object, path: str) -> Iterator[FieldProblem]:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return
    rules = {
        "specReplicasPath": ((".spec.",), "under .spec"),
        "statusReplicasPath": ((".status.",), "under .status"),
        "labelSelectorPath": ((".spec.", ".status."), "under either .spec or .status"),
    }
    for key, (prefixes, where) in rules.items():
        value = scale.get(key) or ""
        if not value:
            if key != "labelSelectorPath":
                yield causes.required(f"{path}.scale.{key}")
        elif not value.startswith("."):
            yield causes.invalid(f"{path}.scale.{key}", value, "must be a simple json path starting with .")
        elif not value.startswith(prefixes):
            yield causes.invalid(f"{path}.scale.{key}", value, f"should be a json path {where}")


def _check_columns(version: Object, path: str) -> Iterator[FieldProblem]:
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        where = f"{path}[{index}]"
        if not column.get("name"):
            yield causes.required(f"{where}.name")
        kinds = f"must be one of {','.join(_COLUMN_TYPES)}"
        if not column.get("type"):
            yield causes.required(f"{where}.type", kinds)
        elif column["type"] not in _COLUMN_TYPES:
            yield causes.invalid(f"{where}.type", column["type"], kinds)
        if column.get("format") and column["format"] not in _COLUMN_FORMATS:
            detail = f"must be one of {','.join(_COLUMN_FORMATS)}"
            yield causes.invalid(f"{where}.format", column["format"], detail)
        json_path = column.get("jsonPath") or ""
        if not json_path:
            yield causes.required(f"{where}.JSONPath")
        elif not json_path.startswith("."):
            yield causes.invalid(f"{where}.JSONPath", json_path, "must be a simple json path starting with .")


def _check_selectable(version: Object, path: str) -> Iterator[FieldProblem]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    seen: set[str] = set()
    for index, entry in enumerate(version.get("selectableFields") or ()):
        text, where = entry.get("jsonPath") or "", f"{path}[{index}].jsonPath"
        if not text:
            yield causes.required(where)
            continue
        target = validations.resolve_path(schema, text) if "[" not in text else None
        if target is None:
            fault = "array notation is not allowed" if "[" in text else "does not refer to a valid field"
            fault = fault if text.startswith((".", "[")) else f"expected [ or . but got: {text.partition('.')[0]}"
            yield causes.invalid(where, text, f"is an invalid path: {fault}")
            continue
        if target[0][0] == "metadata":
            yield causes.invalid(where, text, "must not point to fields in metadata")
        if target[1].get("type") not in ("string", "boolean", "integer"):
            detail = "must point to a field of type string, boolean or integer."
            yield causes.invalid(where, text, f"{detail} Enum string fields and strings with formats are allowed.")
        if text in seen:
            yield causes.duplicate(where, text)
        seen.add(text)
    if len(seen) > _MAX_SELECTABLE:
        yield causes.too_many(path, len(seen), _MAX_SELECTABLE)


_PER_VERSION = {
    "schema": _check_schema,
    "subresources": _check_subresources,
    "additionalPrinterColumns": _check_columns,
    "selectableFields": _check_selectable,
}


def _check_names(names: Object) -> Iterator[FieldProblem]:
    for key in ("plural", "singular", "kind", "listKind"):
        if not names.get(key):
            yield causes.required(f"spec.names.{key}")
    for key in ("plural", "singular"):
        if names.get(key) and (faults := formats.dns1035_label(names[key])):
            yield causes.invalid(f"spec.names.{key}", names[key], ",".join(faults))
    for key in ("kind", "listKind"):
        if names.get(key) and (faults := formats.dns1035_label(names[key].lower())):
            detail = "may have mixed case, but should otherwise match: " + ",".join(faults)
            yield causes.invalid(f"spec.names.{key}", names[key], detail)
    for index, short in enumerate(names.get("shortNames") or ()):
        if faults := formats.dns1035_label(short):
            yield causes.invalid(f"spec.names.shortNames[{index}]", short, ",".join(faults))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield causes.invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")
    for index, category in enumerate(names.get("categories") or ()):
        if faults := formats.dns1035_label(category):
            yield causes.invalid(f"spec.names.categories[{index}]", category, ",".join(faults))


def _check_conversion(spec: Object) -> Iterator[FieldProblem]:
    conversion: Object = spec.get("conversion") or {}
    strategy, path = conversion.get("strategy") or "", "spec.conversion"
    if not strategy:
        yield causes.required(f"{path}.strategy")
    elif strategy not in ("None", "Webhook"):
        yield causes.not_supported(f"{path}.strategy", strategy, ("None", "Webhook"))
    elif strategy == "Webhook":
        if not (conversion.get("webhook") or {}).get("clientConfig"):
            detail = "required when strategy is set to Webhook"
            yield causes.required(f"{path}.webhookClientConfig", detail)
        if not (conversion.get("webhook") or {}).get("conversionReviewVersions"):
            yield causes.required(f"{path}.conversionReviewVersions")
        if len(spec.get("versions") or ()) > 1:
            detail = "this API server does not call conversion webhooks; use None, or define a single version"
            yield causes.invalid(f"{path}.strategy", strategy, detail)
    elif conversion.get("webhook") is not None:
        detail = "should not be set when strategy is not set to Webhook"
        if conversion["webhook"].get("clientConfig"):
            yield causes.forbidden(f"{path}.webhookClientConfig", detail)
        if conversion["webhook"].get("conversionReviewVersions"):
            yield causes.forbidden(f"{path}.conversionReviewVersions", detail)


def _check_unchanged(spec: Object, old: Object) -> Iterator[FieldProblem]:
    """What an update may not change: all that objects are stored under."""
    before: Object = old["spec"]
    fixed = [("group",), ("names", "plural")]
    if has_condition(old, "Established"):
        fixed = [("scope",), ("names", "kind"), *fixed]
    for keys in fixed:
        now: Any = spec
        earlier: Any = before
        for key in keys:
            now, earlier = (now or {}).get(key), (earlier or {}).get(key)
        if now != earlier:
            yield causes.invalid("spec." + ".".join(keys), now or "", "field is immutable")


def _check_stored(crd: Object, spec: Object) -> Iterator[FieldProblem]:
    stored = list((crd.get("status") or {}).get("storedVersions") or ())
    path = "status.storedVersions"
    if not stored:
        yield causes.invalid(path, stored or None, "must have at least one stored version")
        return
    names = [version.get("name") for version in spec.get("versions") or ()]
    for version in spec.get("versions") or ():
        if version.get("storage") and version.get("name") not in stored:
            yield causes.invalid(path, stored, f"must have the storage version {version.get('name')}")
    for index, name in enumerate(stored):
        if name not in names:
            detail = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            yield causes.invalid(f"{path}[{index}]", name, detail)


def _check_approval(crd: Object, spec: Object, old: Object | None) -> Iterator[FieldProblem]:
    group = str(spec.get("group") or "")
    if old is not None or not group.endswith((".k8s.io", ".kubernetes.io")):
        return
    if not (crd["metadata"].get("annotations") or {}).get(_APPROVAL):
        yield causes.required(causes.key_path("metadata.annotations", _APPROVAL), _APPROVAL_REASON)
