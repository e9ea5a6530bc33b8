"""Write tests/contract/facts/*.json: what the vendors' documents say about the operations we call, and no more.

    python tools/cloudfacts.py FOLDER      # with nvidia-bmm-rest.yaml and oxide-nexus.json in it

In: the documents. Out: a table each of operations, parameters, required fields, types and enums, without a word of
description, so that a contract test lives where the documents are missing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.contract import documents  # noqa: E402

OPERATIONS = {
    "nvidia-bmm": """
        get-all-instance get-instance delete-instance get-all-instance-type get-instance-type get-all-site get-site
        get-current-tenant get-machine get-metadata get-user""",
    "oxide": """
        ping current_user_view project_list project_view instance_list instance_view instance_delete instance_start
        instance_stop instance_reboot instance_external_ip_list instance_network_interface_list vpc_list vpc_subnet_list
        vpc_subnet_list_network_interfaces floating_ip_list floating_ip_create floating_ip_view floating_ip_update
        floating_ip_delete floating_ip_attach floating_ip_detach ip_pool_list ip_pool_view""",
}
KEPT = (
    *("$ref", "type", "format", "enum", "required", "properties", "items", "oneOf", "allOf", "anyOf", "nullable"),
    *("additionalProperties", "minimum", "maximum", "minLength", "maxLength", "pattern"),
)
LONGEST_PATTERN = 200


def reduce_schema(schema: Any) -> Any:
    """Nothing but types, names and bounds."""
    if isinstance(schema, list):
        return [reduce_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    reduced: dict[str, Any] = {}
    for key in KEPT:
        if key == "properties" and key in schema:
            reduced[key] = {name: reduce_schema(each) for name, each in schema[key].items()}
        elif key in schema and not (key == "pattern" and len(schema[key]) > LONGEST_PATTERN):
            reduced[key] = reduce_schema(schema[key])
    return reduced


def reduce_content(data: dict[str, Any]) -> dict[str, Any]:
    """The JSON body of a request or an answer."""
    content = data.get("content", {}).get("application/json")
    reduced: dict[str, Any] = {}
    if content is not None:
        reduced["content"] = {"application/json": {"schema": reduce_schema(content["schema"])}}
    if data.get("headers"):
        reduced["headers"] = {name: {} for name in data["headers"]}
    if data.get("required"):
        reduced["required"] = True
    return reduced


def reduce_parameter(data: dict[str, Any]) -> dict[str, Any]:
    """Name, place, schema; whether it is required and may be repeated."""
    reduced = {"name": data["name"], "in": data["in"], "schema": reduce_schema(data["schema"])}
    if data.get("required"):
        reduced["required"] = True
    if "multiple times" in data.get("description", ""):
        reduced["repeatable"] = True
    return reduced


def reduce_operation(data: dict[str, Any], shared: list[dict[str, Any]]) -> dict[str, Any]:
    """One operation, with the parameters of its path."""
    answers = data["responses"].items()
    reduced: dict[str, Any] = {
        "operationId": data["operationId"],
        "parameters": [reduce_parameter(each) for each in [*shared, *data.get("parameters", [])]],
        "responses": {status: each if "$ref" in each else reduce_content(each) for status, each in answers},
    }
    if "requestBody" in data:
        reduced["requestBody"] = reduce_content(data["requestBody"])
    if "x-dropshot-pagination" in data:
        reduced["x-dropshot-pagination"] = {"required": data["x-dropshot-pagination"].get("required", [])}
    return reduced


def references(tree: Any) -> set[str]:
    """Names behind `$ref`."""
    if isinstance(tree, list):
        return set().union(*map(references, tree))
    if not isinstance(tree, dict):
        return set()
    own = {tree["$ref"]} if isinstance(tree.get("$ref"), str) else set()
    return own.union(*map(references, tree.values()))


def reduce_document(document: dict[str, Any], operations: set[str]) -> dict[str, Any]:
    """The operations wanted and what they refer to."""
    paths: dict[str, Any] = {}
    for template, item in document["paths"].items():
        for method, data in item.items():
            if isinstance(data, dict) and data.get("operationId") in operations:
                paths.setdefault(template, {})[method] = reduce_operation(data, item.get("parameters", []))
    kinds: dict[str, dict[str, Any]] = {"schemas": {}, "responses": {}}
    todo = references(paths) | {"#/components/schemas/CarbideAPIError"}
    while todo:
        _, _, kind, name = todo.pop().split("/")
        source = document["components"].get(kind, {})
        if name not in source or name in kinds[kind]:
            continue
        kinds[kind][name] = reduce_schema(source[name]) if kind == "schemas" else reduce_content(source[name])
        todo |= references(kinds[kind][name])
    return {"paths": paths, "components": {kind: dict(sorted(parts.items())) for kind, parts in kinds.items()}}


def main() -> None:
    """Write the tables of both vendors."""
    folder = Path(sys.argv[1]) if len(sys.argv) == 2 else documents.folder()
    if folder is None or not folder.is_dir():
        sys.exit("usage: cloudfacts.py FOLDER (with the vendors' documents)")
    for name, file in documents.FILES.items():
        facts = reduce_document(documents.read(folder / file), set(OPERATIONS[name].split()))
        target = ROOT / "tests" / "contract" / "facts" / f"{name}.json"
        target.write_text(json.dumps(facts, separators=(",", ":"), sort_keys=True) + "\n")
        print(f"{target.relative_to(ROOT)}: {len(facts['paths'])} paths, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
