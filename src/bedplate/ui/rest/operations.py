"""What an address of the API takes and gives: declared once, for the router, the checks and the OpenAPI document.

In: nothing. Out: `Operation` with its parameters, body and answers. `Ask` is a request that was checked against its
operation: parameters as values, the body decoded, the caller known.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from bedplate.head import Identity
from bedplate.ui.rest.problems import Malformed

__all__ = [
    "JSON",
    "MERGE_PATCH",
    "YAML",
    "Answer",
    "Ask",
    "Flag",
    "Handler",
    "Names",
    "Number",
    "Operation",
    "Parameter",
    "Words",
]

JSON = "application/json"
YAML = "application/yaml"
MERGE_PATCH = "application/merge-patch+json"
T = TypeVar("T")


@dataclass(frozen=True)
class Parameter:
    """Text in the query or in the path; `pattern` is what it must match whole."""

    name: str
    doc: str
    where: str = "query"
    pattern: str = ""
    longest: int = 1000
    is_required: bool = False
    example: str = ""

    def schema(self) -> dict[str, Any]:
        bounds = {"minLength": 1, "maxLength": self.longest}
        return {"type": "string", **bounds, **({"pattern": f"^(?:{self.pattern})$"} if self.pattern else {})}

    def parse(self, text: str) -> Any:
        if not 1 <= len(text) <= self.longest or (self.pattern and not re.fullmatch(self.pattern, text)):
            raise ValueError(f"{text[:100]!r} is not {self.doc}")
        return text


@dataclass(frozen=True)
class Number(Parameter):
    """A whole number within bounds."""

    low: int = 0
    high: int = 2**53 - 1

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    def parse(self, text: str) -> int:
        if not re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) or not self.low <= int(text) <= self.high:
            raise ValueError(f"{text[:100]!r} must be an integer between {self.low} and {self.high}")
        return int(text)


@dataclass(frozen=True)
class Flag(Parameter):
    """`true` or `false`."""

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    def parse(self, text: str) -> bool:
        if text not in ("true", "false"):
            raise ValueError(f"{text[:100]!r} is neither true nor false")
        return text == "true"


@dataclass(frozen=True)
class Words(Parameter):
    """One of a few words."""

    words: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}

    def parse(self, text: str) -> str:
        if text not in self.words:
            raise ValueError(f"{text[:100]!r} is not one of {', '.join(self.words)}")
        return text


@dataclass(frozen=True)
class Names(Parameter):
    """Names with commas between them."""

    item: str = r"[a-z]+"

    def schema(self) -> dict[str, Any]:
        pattern = f"^{self.item}(,{self.item})*$"
        return {"type": "string", "minLength": 1, "maxLength": self.longest, "pattern": pattern}

    def parse(self, text: str) -> list[str]:
        if len(text) > self.longest or not re.fullmatch(f"{self.item}(,{self.item})*", text):
            raise ValueError(f"{text[:100]!r} must be names separated by commas")
        return text.split(",")


@dataclass(frozen=True)
class Answer:
    """What an address gives: the name of its schema in the document, or the schema itself."""

    doc: str
    schema: str | Mapping[str, Any] = ""
    type: str = JSON
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ask:
    """A request that was checked. `identity` is empty for addresses that everybody may ask."""

    request: web.Request
    operation: Operation
    identity: Identity
    values: Mapping[str, Any]
    arrives_s: float = 30.0
    """How long the body may take to arrive."""

    async def content(self) -> bytes:
        """The body as bytes. Raises `HTTPRequestTimeout` when it does not arrive in time."""
        try:
            async with asyncio.timeout(self.arrives_s):
                return await self.request.read()
        except TimeoutError:
            self.request.protocol.close()
            raise web.HTTPRequestTimeout from None

    def text(self, name: str) -> str:
        return str(self.values.get(name, ""))

    def number(self, name: str, default: int) -> int:
        return int(self.values.get(name, default))

    def maybe(self, name: str) -> int | None:
        return self.values.get(name)

    def flag(self, name: str) -> bool:
        return bool(self.values.get(name, False))

    def names(self, name: str) -> list[str]:
        return list(self.values.get(name, ()))

    async def body(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The body as a value. Raises `Malformed`."""
        self.expect_type(self.operation.body_type)
        data = await self.content()
        try:
            try:
                return decoder.decode(data)
            except msgspec.ValidationError:
                # JSON knows one kind of number: where a whole one is asked for, 5.0 is 5.
                return msgspec.convert(_whole_numbers(msgspec.json.decode(data)), decoder.type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
            raise Malformed(f"the body cannot be read: {wrong}", hint="see GET /openapi.json for its schema") from None

    def expect_type(self, *types: str) -> None:
        """Raise `Malformed` unless the body is of one of these media types."""
        if "Content-Type" not in self.request.headers:
            raise Malformed("the body has no Content-Type", hint=f"send {types[0]}", status=415)
        if self.request.content_type not in types or (self.request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
            raise Malformed(
                f"a body of type {self.request.content_type!r} is not supported", hint=f"send {types[0]}", status=415
            )


def _whole_numbers(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _whole_numbers(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_whole_numbers(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


Handler = Callable[[Ask], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Operation:
    """One method of one address. `reads_tree` and the like are decided by `auth.needed`, from the address alone."""

    method: str
    path: str
    name: str
    doc: str
    answers: Mapping[int, Answer]
    parameters: Sequence[Parameter] = ()
    body: str = ""
    body_type: str = JSON
    is_write: bool = False
    is_public: bool = False
    is_large: bool = False
    """Whether its body may be as large as a whole tree."""
    tag: str = ""
    conditions: tuple[str, ...] = field(default=())
    """Conditional headers the address obeys: If-Match, If-None-Match."""

    def check(self, request: web.Request) -> dict[str, Any]:
        """The parameters of a request, as values. Raises `Malformed` with every fault."""
        known = {parameter.name: parameter for parameter in self.parameters if parameter.where == "query"}
        values: dict[str, Any] = {}
        faults = []
        for name in dict.fromkeys(request.query):
            given, parameter = request.query.getall(name), known.get(name)
            if parameter is None:
                faults.append(f"there is no parameter {name!r}")
            elif len(given) > 1:
                faults.append(f"{name} is given {len(given)} times")
            else:
                _take(values, parameter, given[0], faults)
        for parameter in self.parameters:
            if parameter.where == "path":
                _take(values, parameter, request.match_info[parameter.name], faults)
            elif parameter.is_required and parameter.name not in values:
                faults.append(f"{parameter.name} is missing")
        if faults:
            raise Malformed(f"{self.method} {request.path} is not a valid request", problems=faults)
        return values


def _take(values: dict[str, Any], parameter: Parameter, text: str, faults: list[str]) -> None:
    try:
        values[parameter.name] = parameter.parse(text)
    except ValueError as wrong:
        faults.append(f"{parameter.name}: {wrong}")
