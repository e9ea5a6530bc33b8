"""Contracts from the reduced facts that this repository holds, or from the vendors' OpenAPI documents.

In: the tables in `facts/`; for tests that ask for a document, the folder named by `BEDPLATE_OPENAPI`, else
`../shared/openapi` beside the repository. Out: a `Contract`. The documents themselves are never copied here;
`tools/cloudfacts.py` writes the tables.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.contract.contract import Answer, Contract, Operation, Parameter, Undocumented

HERE = Path(__file__).parent
FILES = {"nvidia-bmm": "nvidia-bmm-rest.yaml", "oxide": "oxide-nexus.json"}
_METHODS = ("get", "put", "post", "delete", "patch")
_BMM_ERROR = Answer({"$ref": "#/components/schemas/CarbideAPIError"})
UNDOCUMENTED = {
    # The document of BMM lists 200 and 403; its server also answers these, with the same body, and has more states.
    "nvidia-bmm": Undocumented(
        answers=dict.fromkeys(("400", "401", "404", "409", "429", "500", "502", "503", "504"), _BMM_ERROR),
        enum_values={"InstanceStatus": ("Terminated", "Unknown", "BootCompleted")},
        paths=("/__sim", "/oauth2/"),
    ),
    "oxide": Undocumented(paths=("/__sim",)),
}


def folder() -> Path | None:
    """Where the documents are; None when they are not here. A folder that is named must be there."""
    if named := os.environ.get("BEDPLATE_OPENAPI"):
        if not Path(named).is_dir():
            raise NotADirectoryError(f"BEDPLATE_OPENAPI: {named} is not a folder")
        return Path(named)
    beside = HERE.parents[2] / "shared" / "openapi"
    return beside if beside.is_dir() else None


def document(name: str) -> dict[str, Any]:
    """The vendor's document; without the folder of documents the running test is skipped."""
    place = folder()
    if place is None:
        pytest.skip("the vendors' documents are not here (BEDPLATE_OPENAPI)")
    return read(place / FILES[name])


@functools.cache
def load(name: str, source: str = "facts") -> Contract:
    """The contract of `nvidia-bmm` or `oxide`, from the `facts` or from the `document`."""
    if source == "document":
        return _contract(name, document(name))
    return _contract(name, json.loads((HERE / "facts" / f"{name}.json").read_text()))


def read(path: Path) -> dict[str, Any]:
    """A document, JSON or YAML, as a tree."""
    text = path.read_text()
    tree = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=yaml.CSafeLoader)
    assert isinstance(tree, dict)
    return tree


def _contract(name: str, tree: Mapping[str, Any]) -> Contract:
    schemas = {key: _strict(_normal(value)) for key, value in tree["components"]["schemas"].items()}
    operations = [
        _operation(tree, template, method, item, item[method])
        for template, item in tree["paths"].items()
        for method in _METHODS
        if method in item
    ]
    return Contract(name, operations, schemas, UNDOCUMENTED[name])


def _operation(
    tree: Mapping[str, Any], template: str, method: str, item: Mapping[str, Any], data: Mapping[str, Any]
) -> Operation:
    given = [*item.get("parameters", ()), *data.get("parameters", ())]
    body = data.get("requestBody") or {}
    return Operation(
        id=data["operationId"],
        method=method.upper(),
        template=template,
        path={each["name"]: _parameter(each) for each in given if each["in"] == "path"},
        query={each["name"]: _parameter(each) for each in given if each["in"] == "query"},
        first_page_needs=tuple((data.get("x-dropshot-pagination") or {}).get("required", ())),
        body=_json_schema(body),
        needs_body=bool(body.get("required")),
        answers={str(status): _answer(tree, answer) for status, answer in data["responses"].items()},
    )


def _parameter(data: Mapping[str, Any]) -> Parameter:
    # OpenAPI would write a repeatable parameter as an array; BMM's document says it in words.
    repeats = data.get("repeatable") or "multiple times" in data.get("description", "")
    return Parameter(_normal(data["schema"]), bool(data.get("required")), bool(repeats))


def _answer(tree: Mapping[str, Any], data: Mapping[str, Any]) -> Answer:
    if "$ref" in data:
        data = tree["components"]["responses"][str(data["$ref"]).rpartition("/")[2]]
    return Answer(_json_schema(data), tuple(data.get("headers", ())))


def _json_schema(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    content = data.get("content", {}).get("application/json")
    return None if content is None else _strict(_normal(content["schema"]))


def _normal(schema: Any) -> Any:
    """The schema in JSON Schema's own words: OpenAPI 3.0 says `nullable` where it has a type `null`."""
    if isinstance(schema, list):
        return [_normal(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _normal(value) for key, value in schema.items() if key not in ("nullable", "example")}
    if schema.get("nullable") is not True:
        return plain
    if isinstance(plain.get("type"), str) and "enum" not in plain:
        return {**plain, "type": [plain["type"], "null"]}
    return {"anyOf": [plain, {"type": "null"}]}


def _strict(schema: Any) -> Any:
    """The schema with nothing allowed that it does not name: a client must not come to rely on it."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: {name: _strict(each) for name, each in value.items()} if key == "properties" else _strict(value)
        for key, value in schema.items()
    }
    if "properties" in result and "additionalProperties" not in result:
        result["additionalProperties"] = False
    return result
