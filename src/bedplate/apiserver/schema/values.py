"""Structural schemas compiled into functions that check a value.

In: an `openAPIV3Schema`. Out: a function that appends to a `Findings` every fault of a value, in the order and words of
the API server's validator. On an update the old value goes along: a fault under an unchanged, correlatable value is
tolerated (ratcheting). Rules in CEL, list uniqueness and embedded metadata are checked elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bedplate.apiserver.schema import causes, formats, gotext
from bedplate.apiserver.status import FieldProblem

__all__ = ["MISSING", "Check", "Fault", "Findings", "compile_check", "same", "to_causes"]


MISSING: Any = object()
"""stands for an old value that cannot be correlated."""


class Fault(NamedTuple):
    """One fault as the validator states it, before it becomes a cause. `name` is empty for composed faults."""

    code: str
    name: str
    message: str
    value: Any = None
    limit: Any = None


@dataclass(slots=True)
class Findings:
    """Faults so far, and how many checks held: of failed alternatives the one that matched most is reported."""

    faults: list[Fault] = field(default_factory=list)
    matches: int = 0

    def merge(self, other: Findings) -> None:
        self.faults += other.faults
        self.matches += other.matches


Check = Callable[[Any, str, Any, Findings], None]
"""check(value, path, old value or MISSING, findings)."""


def same(left: Any, right: Any) -> bool:
    """Equality that tells 1, 1.0 and true apart, as JSON does."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(key in right and same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def to_causes(findings: Findings, prefix: str = "") -> list[FieldProblem]:
    """The faults as causes, each once; `prefix` is where the checked value stands in its object."""
    unique_causes: dict[tuple[str, str], FieldProblem] = {}
    for fault in findings.faults:
        cause = _to_cause(fault, prefix)
        unique_causes.setdefault((cause.field, cause.message), cause)
    return list(unique_causes.values())


def _to_cause(fault: Fault, prefix: str) -> FieldProblem:
    name = fault.name.removeprefix(".")
    path = f"{prefix}.{name}" if prefix and name else prefix or name or causes.NO_PATH
    if fault.code == "required":
        return causes.required(path)
    if fault.code == "enum":
        supported = [value if isinstance(value, str) else gotext.marshal(value) for value in fault.limit]
        return causes.not_supported(path, fault.value, supported)
    if fault.code == "too_long":
        return causes.too_long(path, fault.limit)
    if fault.code == "too_many":
        return causes.too_many(path, fault.value, fault.limit)
    if fault.code == "composed":
        return causes.invalid(prefix or causes.NO_PATH, "", fault.message)
    value = "" if fault.value is None else fault.value
    if fault.code == "type":
        return causes.type_invalid(path, value, fault.message)
    return causes.invalid(path, value, fault.message)


_KINDS = {bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object"}
_GO_FORMATS = {int: "int64", float: "float64"}


def compile_check(schema: Mapping[str, Any], *, is_root: bool = False) -> Check:
    """The check of a schema, tolerant of faults under a value that an update leaves as it was."""
    inner = _compile_node(schema, is_root=is_root)

    def check(value: Any, path: str, old: Any, findings: Findings) -> None:
        before = len(findings.faults)
        inner(value, path, old, findings)
        if len(findings.faults) > before and old is not MISSING and same(value, old):
            del findings.faults[before:]

    return check


def _compile_node(schema: Mapping[str, Any], *, is_root: bool = False) -> Check:
    check_type = _compile_type(schema)
    composed = _compile_composed(schema)
    parts: dict[type, Sequence[Check]] = {
        str: _string_checks(schema),
        int: _number_checks(schema),
        float: _number_checks(schema),
        list: _list_checks(schema),
        dict: _object_checks(schema, is_root),
        bool: (),
    }
    enum = _compile_enum(schema)
    # How many checks the server's validator counts for a value of each kind.
    has_type = bool(schema.get("type") or schema.get("x-kubernetes-int-or-string") or _format(schema))
    counts = {str: 1 + bool(_format(schema)), int: 2, float: 2, list: 2, dict: 1, bool: 0}

    def check(value: Any, path: str, old: Any, findings: Findings) -> None:
        kind = type(value)
        if value is None:
            check_type(value, path, old, findings)
            if enum is not None:
                enum(value, path, old, findings)
            return
        if has_type:
            check_type(value, path, old, findings)
        if composed is not None:
            composed(value, path, old, findings)
        for part in parts[kind]:
            part(value, path, old, findings)
        if enum is not None:
            enum(value, path, old, findings)
        findings.matches += 4 + counts[kind]

    return check


def _format(schema: Mapping[str, Any]) -> str:
    name = schema.get("format") or ""
    return name if formats.normalize(name) in formats.CHECKS else ""


def _compile_type(schema: Mapping[str, Any]) -> Check:
    type_names = (
        ("integer", "string")
        if schema.get("x-kubernetes-int-or-string")
        else ((schema["type"],) if schema.get("type") else ())
    )
    nullable, format_name, shown = bool(schema.get("nullable")), _format(schema), ",".join(type_names)
    is_numeric = "integer" in type_names or "number" in type_names
    accepted = {kind for kind, name in _KINDS.items() if name in type_names}
    if "number" in type_names:
        accepted.add(int)

    def check(value: Any, path: str, old: Any, findings: Findings) -> None:
        kind = type(value)
        if kind in accepted:
            findings.matches += 2
            return
        if value is None:
            if type_names and not nullable:
                findings.faults.append(_type_fault(path, shown, "null"))
            return
        if kind is float and "integer" in type_names and value.is_integer():
            return
        if format_name and kind not in (str, list):
            findings.faults.append(_type_fault(path, format_name, _GO_FORMATS.get(kind, "")))
            return
        if format_name and not is_numeric:
            return
        findings.faults.append(_type_fault(path, shown, _KINDS[kind]))

    return check


def _type_fault(path: str, expected: str, actual: str) -> Fault:
    text = f"{path} in body must be of type {expected}: {gotext.quote(actual)}"
    return Fault("type", path, text, actual)


def _compile_enum(schema: Mapping[str, Any]) -> Check | None:
    allowed = schema.get("enum")
    if not allowed:
        return None

    def check(value: Any, path: str, old: Any, findings: Findings) -> None:
        for option in allowed:
            if same(value, option) or (_is_number(value) and _is_number(option) and value == option):
                return
        findings.faults.append(Fault("enum", path, "", value, allowed))

    return check


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _string_checks(schema: Mapping[str, Any]) -> list[Check]:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    search = gotext.compile_pattern(pattern).search if pattern else None
    found_checks: list[Check] = []

    def check(value: Any, path: str, old: Any, findings: Findings) -> None:
        if longest is not None and len(value) > longest:
            findings.faults.append(Fault("too_long", path, "", value, longest))
        elif shortest is not None and len(value) < shortest:
            text = f"{path} in body should be at least {shortest} chars long"
            findings.faults.append(Fault("invalid", path, text, value))
        elif search is not None and search(value) is None:
            findings.faults.append(Fault("invalid", path, f"{path} in body should match '{pattern}'", value))

    if longest is not None or shortest is not None or pattern:
        found_checks.append(check)
    if format_name := _format(schema):
        has_format = formats.CHECKS[formats.normalize(format_name)]

        def check_format(value: Any, path: str, old: Any, findings: Findings) -> None:
            if not has_format(value):
                findings.faults.append(_type_fault(path, format_name, value))

        found_checks.append(check_format)
    return found_checks


def _number_checks(schema: Mapping[str, Any]) -> list[Check]:
    factor, lowest, highest = schema.get("multipleOf"), schema.get("minimum"), schema.get("maximum")
    above, below = bool(schema.get("exclusiveMinimum")), bool(schema.get("exclusiveMaximum"))
    if factor is None and lowest is None and highest is None:
        return []

    def check(value: Any, path: str, old: Any, findings: Findings) -> None:
        # The server compares integers with the integer part of a limit.
        cut: Callable[[Any], Any] = int if type(value) is int else float
        if factor is not None and cut(factor) <= 0:
            text = f"factor MultipleOf declared for {path} must be positive: {gotext.show(cut(factor))}"
            findings.faults.append(Fault("invalid", path, text, cut(factor)))
        elif factor is not None and not _is_multiple(value, cut(factor)):
            _bound(findings, path, value, "a multiple of", cut(factor))
        if lowest is not None and (value < cut(lowest) or (above and value == cut(lowest))):
            _bound(findings, path, value, "greater than" if above else "greater than or equal to", cut(lowest))
        if highest is not None and (value > cut(highest) or (below and value == cut(highest))):
            _bound(findings, path, value, "less than" if below else "less than or equal to", cut(highest))

    return [check]


def _is_multiple(value: Any, factor: Any) -> bool:
    if isinstance(value, int):
        return bool(factor > 0 and value % factor == 0)
    quotient = 1 / factor * value if factor < 1 else value / factor
    return bool(abs(quotient - round(quotient)) < 1e-9)


def _bound(findings: Findings, path: str, value: Any, relation: str, limit: Any) -> None:
    text = f"{path} in body should be {relation} {gotext.show(limit)}"
    findings.faults.append(Fault("invalid", path, text, value))


def _list_checks(schema: Mapping[str, Any]) -> list[Check]:
    items = schema.get("items")
    check_item = compile_check(items) if isinstance(items, Mapping) else None
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    correlates = schema.get("x-kubernetes-list-type") == "map" and bool(keys)
    fewest, most, unique = schema.get("minItems"), schema.get("maxItems"), bool(schema.get("uniqueItems"))

    def check(value: Any, path: str, old: Any, findings: Findings) -> None:
        if check_item is not None:
            earlier = by_keys(old, keys) if correlates and type(old) is list else None
            for index, item in enumerate(value):
                before = earlier.get(keys_of(item, keys), MISSING) if earlier else MISSING
                check_item(item, f"{path}[{index}]", before, findings)
        size = len(value)
        if fewest is not None and size < fewest:
            text = f"{path} in body should have at least {fewest} items"
            findings.faults.append(Fault("invalid", path, text, size))
        if most is not None and size > most:
            findings.faults.append(Fault("too_many", path, "", size, most))
        if unique and any(same(item, other) for at, item in enumerate(value) for other in value[:at]):
            findings.faults.append(Fault("invalid", path, f"{path} in body shouldn't contain duplicates"))

    return [check]


def keys_of(item: Any, keys: Sequence[str]) -> tuple[Any, ...]:
    """The key of an item of a list-map; the kind of each value is part of it."""
    if type(item) is not dict:
        return ()
    return tuple((type(item.get(key)).__name__, repr(item.get(key))) for key in keys)


def by_keys(items: Sequence[Any], keys: Sequence[str]) -> dict[tuple[Any, ...], Any]:
    items_by_key: dict[tuple[Any, ...], Any] = {}
    for item in items:
        items_by_key.setdefault(keys_of(item, keys), item)
    return items_by_key


def _object_checks(schema: Mapping[str, Any], is_root: bool) -> list[Check]:
    properties = {name: compile_check(sub) for name, sub in (schema.get("properties") or {}).items()}
    required: tuple[str, ...] = tuple(schema.get("required") or ())
    fewest, most = schema.get("minProperties"), schema.get("maxProperties")
    extra = schema.get("additionalProperties")
    check_extra = compile_check(extra) if isinstance(extra, Mapping) else None

    def check(value: Any, path: str, old: Any, findings: Findings) -> None:
        size = len(value)
        if fewest is not None and size < fewest:
            text = f"{path} in body should have at least {fewest} properties"
            findings.faults.append(Fault("invalid", path, text, size))
        if most is not None and size > most:
            findings.faults.append(Fault("too_many", path, "", size, most))
        earlier = old if type(old) is dict else None
        for name, member in value.items():
            check_member = properties.get(name)
            if check_member is None:
                if extra is False:
                    text = f"{path}.{name} in body is a forbidden property"
                    findings.faults.append(Fault("invalid", path, text, name))
                check_member = check_extra
                if check_member is None:
                    continue
            before = MISSING if earlier is None else earlier.get(name, MISSING)
            if is_root and name in ("apiVersion", "kind"):
                before = MISSING
            check_member(member, f"{path}.{name}" if path else name, before, findings)
        for name in required:
            if name not in value:
                findings.faults.append(Fault("required", f"{path}.{name}", ""))

    return [check]


def _compile_composed(schema: Mapping[str, Any]) -> Check | None:
    any_of = [_compile_node(sub) for sub in schema.get("anyOf") or ()]
    one_of = [_compile_node(sub) for sub in schema.get("oneOf") or ()]
    all_of = [_compile_node(sub) for sub in schema.get("allOf") or ()]
    negated = _compile_node(schema["not"]) if schema.get("not") is not None else None
    if not any_of and not one_of and not all_of and negated is None:
        return None

    def check(value: Any, path: str, old: Any, findings: Findings) -> None:
        shown = gotext.quote(path)
        if any_of:
            _, best = _alternatives(any_of, value, path, old, stop=True)
            if best.faults:
                findings.faults.append(Fault("composed", "", f"{shown} must validate at least one schema (anyOf)"))
            findings.merge(best)
        if one_of:
            valid, best = _alternatives(one_of, value, path, old, stop=False)
            if valid != 1:
                detail = f"Found {valid} valid alternatives" if valid else "Found none valid"
                text = f"{shown} must validate one and only one schema (oneOf). {detail}"
                findings.faults.append(Fault("composed", "", text))
            if valid < 2:
                findings.merge(best)
        if all_of:
            _check_all(all_of, value, path, old, findings)
        if negated is not None:
            trial = Findings()
            negated(value, path, old, trial)
            if not trial.faults:
                findings.faults.append(Fault("composed", "", f"{shown} must not validate the schema (not)"))

    return check


def _alternatives(checks: Sequence[Check], value: Any, path: str, old: Any, *, stop: bool) -> tuple[int, Findings]:
    """How many alternatives hold, and the findings of the first that does, else of the one that came closest."""
    valid, best = 0, None
    for check in checks:
        trial = Findings()
        check(value, path, old, trial)
        if not trial.faults:
            valid += 1
            if valid == 1:
                best = trial
            if stop:
                break
        elif not valid and (best is None or trial.matches > best.matches):
            best = trial
    return valid, best or Findings()


def _check_all(checks: Sequence[Check], value: Any, path: str, old: Any, findings: Findings) -> None:
    failed = 0
    for check in checks:
        trial = Findings()
        check(value, path, old, trial)
        failed += bool(trial.faults)
        findings.merge(trial)
    if failed:
        detail = ". None validated" if failed == len(checks) else ""
        text = f"{gotext.quote(path)} must validate all the schemas (allOf){detail}"
        findings.faults.append(Fault("composed", "", text))
