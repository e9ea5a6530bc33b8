"""The OpenAPI document, made of the same declarations that route and check requests.

In: the table of addresses, the Structs of `api.headapi`, the entities. Out: an OpenAPI 3.1 document as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bedplate import __version__
from bedplate.api import headapi, setups
from bedplate.api.desired import Desired
from bedplate.head import Schema
from bedplate.head.schema.entity import Submode
from bedplate.ui.rest import schemas
from bedplate.ui.rest.addresses import OPERATIONS
from bedplate.ui.rest.operations import Answer, Operation, Parameter

__all__ = ["document"]

_STRUCTS: tuple[Any, ...] = (
    headapi.AuditPage,
    headapi.AuthorityState,
    headapi.CertificateList,
    headapi.CertificateAnswer,
    headapi.CertificateRequest,
    headapi.ClusterHealth,
    headapi.ClusterState,
    headapi.PeopleState,
    headapi.CommitRequest,
    headapi.CommitResult,
    headapi.EnrolmentAnswer,
    headapi.EnrolmentDecision,
    headapi.EnrolmentList,
    headapi.EnrolmentRequest,
    headapi.ErrandList,
    headapi.ErrandRequest,
    headapi.ExplainResult,
    headapi.HealthEvent,
    headapi.ImageAction,
    headapi.ImageList,
    headapi.ImageResult,
    headapi.JoinAnswer,
    headapi.JoinRequest,
    headapi.NodeHealth,
    headapi.NodeList,
    headapi.NoticePage,
    headapi.ObjectPatch,
    headapi.ObjectWrite,
    headapi.PlanRequest,
    headapi.PlanResult,
    headapi.Problem,
    headapi.ReportRequest,
    headapi.ReportResult,
    headapi.Reset,
    headapi.RevisionPage,
    headapi.RevisionProgress,
    headapi.RevocationList,
    headapi.RevocationRequest,
    headapi.RolloutAction,
    headapi.RolloutState,
    headapi.RotationRequest,
    setups.SetupAction,
    setups.SetupForm,
    setups.SetupList,
    setups.SetupRun,
    headapi.TokenList,
    headapi.TokenMade,
    headapi.TokenRequest,
    headapi.TreeDocument,
    headapi.TurnAnswer,
    headapi.TurnEnd,
    headapi.TurnList,
    headapi.TurnRequest,
    headapi.UndoRequest,
    headapi.Whoami,
    Desired,
)
_ERRORS = {
    400: "the request does not conform to this document",
    401: "no valid credential",
    403: "the caller may not do that",
    404: "not found",
    408: "the body did not arrive in time",
    409: "conflict with the present tree: a stale edit (`author`, `revision`), a broken reference, a taken name",
    412: "the condition of If-Match or If-None-Match failed",
    413: "the body is too large",
    415: "the type of the body is not supported",
    422: "the Idempotency-Key was used for another request",
    428: "the object exists, and neither If-Match nor `revision` says which one is to be replaced",
    429: "the node reports too often",
    503: "this head is unavailable; `Bedplate-Active` names the active one",
    507: "the store is full; nothing was written",
}


def document(schema: Schema) -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        if "{mode}" in operation.path:
            for mode in schema.modes.values():
                path = operation.path.replace("{mode}", mode.shell)
                paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, mode)
        else:
            paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Bedplate head",
            "version": __version__,
            "description": "The head node: one tree of objects, its history, and the "
            "effective configuration of each node.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"certificate": []}],
        "tags": [{"name": name} for name in dict.fromkeys(entry.tag or "head" for entry in OPERATIONS)],
        "paths": paths,
        "components": {
            "schemas": _components(schema),
            "headers": _HEADERS,
            "parameters": _CONDITIONS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "`bedplate head token create`"},
                "certificate": {"type": "mutualTLS", "description": "a client certificate of this head's authority"},
            },
        },
    }


_HEADERS = {
    "ETag": {"description": "the tag for conditional requests", "schema": {"type": "string"}},
    "Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 0}},
    "Allow": {"description": "the methods that this address supports", "schema": {"type": "string"}},
    "Bedplate-Active": {"description": "the URL of the active head node", "schema": {"type": "string"}},
}
_CONDITIONS = {
    name: {"name": name, "in": "header", "description": doc, "schema": {"type": "string"}}
    for name, doc in {
        "If-Match": 'write only if the ETag that a read gave matches, as in "12"; else 412',
        "If-None-Match": "respond with 304 if the ETag matches; `*` with PUT: create only, else 412",
        "Idempotency-Key": "up to 64 letters, digits, dots and dashes; a repeated one gets the first response, "
        "with another body 422",
        "Last-Event-ID": "the id of the last event received",
    }.items()
}


_EVENT: dict[str, Any] = {
    "type": "object",
    "description": "One server-sent event; `data` is JSON of the kind that `event` names.",
    "properties": {
        "id": {"type": "string", "description": "what `Last-Event-ID` takes"},
        "event": {"enum": ["revision", "notice", "health", "reset"]},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "anyOf": [schemas.reference(name) for name in ("Revision", "Notice", "HealthEvent", "Reset")]
            },
        },
    },
    "required": ["id", "event", "data"],
}


def _components(schema: Schema) -> dict[str, Any]:
    _, structs = msgspec.json.schema_components(_STRUCTS, ref_template="#/components/schemas/{name}")
    components: dict[str, Any] = dict(structs)
    components |= schemas.components(schema)
    components["Object"] = schemas.alternatives(
        [schemas.reference(schemas.mode_name(mode)) for mode in schema.modes.values()]
    )
    components["StreamedEvent"] = _EVENT
    components["SetupAnswers"] = {
        "type": "object",
        "description": "Answers, as docs/reference/setup-answers.md and setup-answers.schema.json have them.",
        "properties": {"meta": {"type": "object"}, "kubernetes": {"type": "object"}},
        "required": ["kubernetes"],
        "additionalProperties": False,
    }
    components["Schema"] = {
        "type": "object",
        "properties": {
            "modes": {"type": "array", "items": {"type": "object"}},
            "entities": {"type": "array", "items": {"type": "object"}},
            "largestObjectBytes": {"type": "integer", "description": "how large an object may be as JSON"},
        },
        "required": ["modes", "entities", "largestObjectBytes"],
    }
    return components


def _operation(operation: Operation, mode: Submode | None) -> dict[str, Any]:
    word = "" if mode is None else schemas.mode_name(mode)
    result: dict[str, Any] = {
        "operationId": operation.name.rstrip("_") + word,
        "summary": operation.doc.split(". ")[0].rstrip("."),
        "description": _description(operation, mode),
        "tags": [operation.tag or "head"],
        "responses": _responses(operation, word),
    }
    parameters = [_parameter(parameter, mode) for parameter in operation.parameters]
    if parameters:
        result["parameters"] = parameters
    if operation.body:
        content = {operation.body_type: {"schema": schemas.reference(operation.body.replace("{Mode}", word))}}
        result["requestBody"] = {"required": True, "content": content}
    if operation.is_public:
        result["security"] = []
    return result


_UNREPEATED = (
    "report",
    "create_token",
    "revoke_token",
    "revoke_certificates",
    "rotate",
    "join",
    "enrol",
    "decide_enrolment",
    "renew",
    "take_turn",
    "end_turn",
    "release_turn",
    "act_on_rollout",
    "ask_errand",
    "act_on_image",
    "transfer_image",
    "transfer_snapshot",
    "start_setup",
    "act_on_setup",
)


def _has_nonce(operation: Operation) -> bool:
    """Whether a repeated request is known by its nonce."""
    return operation.is_write and operation.name not in _UNREPEATED


def _description(operation: Operation, mode: Submode | None) -> str:
    sentences = [operation.doc]
    if mode is not None:
        sentences.append(f"Mode `{mode.shell}`: {mode.doc}.")
    if operation.conditions:
        sentences.append(f"Obeys the headers {' and '.join(operation.conditions)} (components/parameters).")
    if _has_nonce(operation):
        sentences.append("`Idempotency-Key` makes a repeated request safe.")
    return " ".join(sentences)


def _parameter(parameter: Parameter, mode: Submode | None) -> dict[str, Any]:
    is_key = mode is not None and parameter.name == "key"
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.is_required or parameter.where == "path",
        "description": parameter.doc,
        "schema": schemas.key(mode) if is_key and mode is not None else parameter.schema(),
        **({"example": parameter.example} if parameter.example else {}),
    }


def _responses(operation: Operation, word: str) -> dict[str, Any]:
    responses = {str(status): _response(answer, word) for status, answer in operation.answers.items()}
    for status in _possible(operation):
        headers = {429: ("Retry-After",), 503: ("Retry-After", "Bedplate-Active")}.get(status, ())
        response = _response(Answer(_ERRORS[status], "Problem", "application/problem+json", headers), "")
        if status == 400:
            # What is not HTTP, such as an endless address, is refused before any handler.
            response["content"]["text/plain"] = {"schema": {"type": "string"}}
        responses.setdefault(str(status), response)
    return dict(sorted(responses.items()))


def _possible(operation: Operation) -> list[int]:
    """The errors an address may answer with."""
    if operation.is_public:
        return [400]
    statuses = [400, 401, 403]
    if any(
        parameter.where == "path" or parameter.name in ("at", "from", "continue") for parameter in operation.parameters
    ):
        statuses.append(404)
    if (
        operation.path.endswith("{mode}")
        or "undoes" in operation.name
        or operation.name in ("commit", "create_token", "authority")
    ):
        statuses.append(404)
    if operation.body or operation.is_write:
        statuses += [404, 408, 409, 413, 415]
    if "If-Match" in operation.conditions:
        statuses.append(412)
    if _has_nonce(operation):
        statuses.append(422)
    if operation.name == "put":
        statuses.append(428)
    if operation.name in ("report", "renew"):
        statuses.append(429)
    if operation.is_write:
        statuses.append(507)
    return sorted({*statuses, 503})


def _response(answer: Answer, word: str) -> dict[str, Any]:
    response: dict[str, Any] = {"description": answer.doc}
    if answer.type:
        shown: Mapping[str, Any]
        if isinstance(answer.schema, str):
            shown = schemas.reference(answer.schema.replace("{Mode}", word))
        else:
            shown = answer.schema
        response["content"] = {answer.type: {"schema": shown}}
    if answer.headers:
        response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in answer.headers}
    return response
