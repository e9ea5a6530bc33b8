"""What a vendor's document says about requests and answers, as checks.

In: operations with their parameters, bodies and answers (from `documents` or from the reduced facts). Out: for each
request and each answer the list of what the document does not allow. Pure: `proxy` does the HTTP.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A path or query parameter."""

    schema: Schema
    is_required: bool = False
    is_repeatable: bool = False


@dataclass(frozen=True)
class Answer:
    """A documented answer: the schema of its JSON body (None: no body) and the headers it carries."""

    schema: Schema | None
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """One operation of the document."""

    id: str
    method: str
    template: str
    path: Mapping[str, Parameter] = field(default_factory=dict)
    query: Mapping[str, Parameter] = field(default_factory=dict)
    first_page_needs: tuple[str, ...] = ()
    body: Schema | None = None
    needs_body: bool = False
    answers: Mapping[str, Answer] = field(default_factory=dict)

    def answer(self, status: int) -> Answer | None:
        """What is said of a status, by itself or by its class."""
        return self.answers.get(str(status)) or self.answers.get(f"{status // 100}XX")


@dataclass(frozen=True)
class Undocumented:
    """What a server is known to do although its document does not say so: the explicit list."""

    answers: Mapping[str, Answer] = field(default_factory=dict)
    enum_values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By name of the object: values besides the documented ones."""
    paths: Sequence[str] = ()
    """Beginnings of paths that are not the vendor's API at all."""


class Contract:
    """All operations of one API."""

    def __init__(
        self, name: str, operations: Sequence[Operation], objects: Mapping[str, Schema], undocumented: Undocumented
    ) -> None:
        self.name = name
        self.operations = {operation.id: operation for operation in operations}
        self.objects = {key: _widened(value, undocumented.enum_values.get(key, ())) for key, value in objects.items()}
        self.undocumented = undocumented
        self._patterns = [(_pattern(operation.template), operation) for operation in operations]
        self._patterns.sort(key=lambda pair: pair[1].template.count("{"))
        self._validators: dict[str, Any] = {}

    def is_foreign(self, path: str) -> bool:
        """Whether this path is none of the vendor's business (the simulator's own, a token service)."""
        return path.startswith(tuple(self.undocumented.paths))

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
        """The operation of a request, and the values of its path parameters."""
        for pattern, operation in self._patterns:
            if operation.method == method and (match := pattern.fullmatch(path)):
                return operation, {name: unquote(value) for name, value in match.groupdict().items()}
        return None

    def check_request(
        self, operation: Operation, params: Mapping[str, str], query: Sequence[tuple[str, str]], body: bytes
    ) -> list[str]:
        """What the document does not allow about a request."""
        problems = [
            problem
            for name, value in params.items()
            for problem in self._check_text(f"path parameter {name}", operation.path[name].schema, value)
        ]
        problems += self._check_query(operation, query)
        if body and operation.body is None:
            problems.append("has a body, the document has none")
        elif operation.body is not None and (body or operation.needs_body):
            problems += self._check_json("request body", operation.body, body)
        return problems

    def check_answer(self, operation: Operation, status: int, headers: Mapping[str, str], body: bytes) -> list[str]:
        """What the document does not allow about an answer."""
        answer = operation.answer(status) or self.undocumented.answers.get(str(status))
        if answer is None:
            return [f"status {status} is neither documented nor on the list of what the server does besides"]
        problems = [f"header {name} is missing" for name in answer.headers if name not in headers]
        if answer.schema is None:
            return [*problems, "has a body, the document has none"] if body else problems
        kind = headers.get("Content-Type", "").partition(";")[0].strip()
        if kind != "application/json":
            return [*problems, f"content type is {kind!r}, not application/json"]
        return problems + self._check_json("body", answer.schema, body)

    def _check_query(self, operation: Operation, query: Sequence[tuple[str, str]]) -> list[str]:
        problems: list[str] = []
        names = [name for name, _ in query]
        for name, value in query:
            parameter = operation.query.get(name)
            if parameter is None:
                problems.append(f"query parameter {name!r} is not documented")
            else:
                problems += self._check_text(f"query parameter {name}", parameter.schema, value)
        needed = {name for name, parameter in operation.query.items() if parameter.is_required}
        if "page_token" not in names:
            needed |= set(operation.first_page_needs)
        problems += [f"query parameter {name!r} is required" for name in sorted(needed - set(names))]
        for name in sorted({name for name in names if names.count(name) > 1}):
            if name in operation.query and not operation.query[name].is_repeatable:
                problems.append(f"query parameter {name!r} is given more than once")
        return problems

    def _check_text(self, where: str, schema: Schema, text: str) -> list[str]:
        """Text stands for a number or a boolean where the schema wants one."""
        types = self._types(schema)
        value: Any = text
        if "integer" in types and re.fullmatch(r"-?\d+", text):
            value = int(text)
        elif "boolean" in types and text in ("true", "false"):
            value = text == "true"
        return self._errors(where, schema, value)

    def _types(self, schema: Schema) -> set[str]:
        if "$ref" in schema:
            return self._types(self.objects[str(schema["$ref"]).rpartition("/")[2]])
        kind = schema.get("type", ())
        return {kind} if isinstance(kind, str) else set(kind)

    def _check_json(self, where: str, schema: Schema, body: bytes) -> list[str]:
        try:
            value = json.loads(body)
        except ValueError as err:
            return [f"{where} is not JSON: {err}"]
        return self._errors(where, schema, value)

    def _errors(self, where: str, schema: Schema, value: Any) -> list[str]:
        key = json.dumps(schema, sort_keys=True)
        validator = self._validators.get(key)
        if validator is None:
            whole = {**schema, "components": {"schemas": self.objects}}
            validator = jsonschema_rs.Draft202012Validator(whole, validate_formats=True, formats={"ip": _is_ip})
            self._validators[key] = validator
        return [_describe(where, error) for error in validator.iter_errors(value)]


def _describe(where: str, error: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    return f"{where}{path}: {error.message[:300]}"


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template))


def _widened(schema: Schema, values: Sequence[str]) -> Schema:
    return {**schema, "enum": [*schema["enum"], *values]} if values else schema
