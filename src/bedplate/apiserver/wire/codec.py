"""Content negotiation and bodies: what a client accepts, what it sent.

In: `Accept` and `Content-Type` headers and raw bodies (JSON, YAML, Kubernetes protobuf). Out: `Wanted` forms and
decoded objects. Answers are JSON or YAML; protobuf is read and not written, CBOR is refused. Unknown and duplicate
fields are found here only as far as the text shows them; what a kind knows is the rules' part.

Everything that walks objects later does so by recursion, so depth is refused here, once, for all of it. Text of a few
bytes that YAML's aliases blow up to gigabytes is refused too, and so is what JSON cannot say (keys that are not
strings, values outside JSON, objects within themselves).
"""

from __future__ import annotations

import functools
import json
import math
from typing import Any, NamedTuple, Protocol

import msgspec

from bedplate.apiserver import status
from bedplate.apiserver.state import bodies
from bedplate.core import errors

__all__ = ["JSON", "MAX_DEPTH", "PROTOBUF", "YAML", "Body", "Wanted", "decode_body", "encode", "wanted"]

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_ACCEPTED = f"{JSON}, {YAML}, {PROTOBUF}"
TRANSFORMS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
MAX_DEPTH = 200
MAX_NODES = 1_000_000
_TOO_DEEP = f"exceeded max depth of {MAX_DEPTH}"


class Wanted(NamedTuple):
    """The form a client wants an answer in. `shape` is empty for the object itself."""

    media: str = JSON
    shape: str = ""
    shape_version: str = "v1"
    is_pretty: bool = False


class Body(NamedTuple):
    """A decoded body. `problems` are duplicate fields, in the words of strict decoding."""

    object: Any
    problems: list[str]
    is_protobuf: bool = False


@functools.lru_cache(maxsize=256)
def wanted(accept: str) -> Wanted | None:
    """The first form a client accepts that we can give; None when there is none."""
    clauses = [_parse(clause) for clause in accept.split(",")] if accept.strip() else [("*/*", {})]
    clauses.sort(key=lambda clause: -_quality(clause[1].get("q", "1")))
    for media, parameters in clauses:
        if media in ("*/*", "application/*"):
            media = JSON
        if media not in (JSON, YAML):
            continue
        shape = parameters.get("as", "")
        if shape:
            known = shape in TRANSFORMS and parameters.get("g") == "meta.k8s.io"
            if not known or parameters.get("v") not in ("v1", "v1beta1"):
                continue
        return Wanted(media, shape, parameters.get("v", "v1"), parameters.get("pretty") in ("1", "true"))
    return None


def not_acceptable() -> status.StatusError:
    return status.StatusError(406, "NotAcceptable", f"only the following media types are accepted: {_ACCEPTED}")


def _parse(clause: str) -> tuple[str, dict[str, str]]:
    media, *parameters = (part.strip() for part in clause.split(";"))
    pairs = (parameter.partition("=") for parameter in parameters)
    return media.lower(), {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def encode(wish: Wanted, body: bytes) -> tuple[bytes, str]:
    """JSON bytes in the wanted media type, and its name."""
    if wish.media == YAML:
        import yaml

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        text = yaml.dump(bodies.decode(body), Dumper=dumper, default_flow_style=False, allow_unicode=True)
        return text.encode(), YAML
    if wish.is_pretty:
        return msgspec.json.format(body, indent=2) + b"\n", JSON
    return body, JSON


class Decoder(Protocol):
    """What reads Kubernetes protobuf."""

    def decode(self, raw: bytes) -> Any: ...


def decode_body(content_type: str, raw: bytes, decoder: Decoder, *, find_duplicates: bool = False) -> Body:
    """Decode by content type (JSON where none is said); raises 400 and 415."""
    media = content_type.partition(";")[0].strip().lower()
    if media in ("", JSON, "*/*"):
        return _decode_json(raw, find_duplicates)
    if media == PROTOBUF:
        try:
            message = decoder.decode(raw)
        except errors.Invalid as err:
            raise status.bad_request(str(err)) from None
        return Body({"apiVersion": message.api_version, "kind": message.kind, **message.object}, [], True)
    if media == YAML:
        return Body(decode_yaml(raw), [])
    text = f"the body of the request was in an unknown format - accepted media types include: {_ACCEPTED}"
    raise status.StatusError(415, "UnsupportedMediaType", text)


def _decode_json(raw: bytes, find_duplicates: bool) -> Body:
    try:
        decoded = _checked(raw, bodies.decode(raw))
    except (msgspec.DecodeError, ValueError, RecursionError) as err:
        raise status.bad_request(f"couldn't get version/kind; json parse error: {err}") from None
    problems: list[str] = []
    # Counting keys before and after tells whether any was lost, at a tenth of the cost of looking at each.
    if find_duplicates and raw.count(b'":') > bodies.encode(decoded).count(b'":'):
        problems = _duplicates(raw)
    return Body(decoded, problems)


def decode_patch(raw: bytes) -> Any:
    try:
        return _checked(raw, bodies.decode(raw))
    except (msgspec.DecodeError, ValueError, RecursionError) as err:
        raise status.bad_request(f"error decoding patch: {err}") from None


def decode_yaml(raw: bytes) -> Any:
    """YAML (or JSON, which it includes) as a body or an apply patch."""
    if raw.lstrip()[:1] == b"{":
        try:
            return _checked(raw, bodies.decode(raw))
        except msgspec.DecodeError:
            pass  # flow style that is not JSON
        except (ValueError, RecursionError) as err:
            raise status.bad_request(f"error decoding YAML: {err}") from None
    import yaml

    from bedplate.core import yamls

    try:
        return _checked_tree(yamls.load(raw))
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        raise status.bad_request(f"error decoding YAML: {err}") from None


class _Pairs(list[tuple[str, Any]]):
    """The members of one JSON object, in order, repeated ones included."""


def _duplicates(raw: bytes) -> list[str]:
    problems: list[str] = []

    def look(value: Any, path: str) -> None:
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for key, member in value:
                where = f"{path}.{key}" if path else key
                if key in seen:
                    problems.append(f'duplicate field "{where}"')
                seen.add(key)
                look(member, where)
        elif isinstance(value, list):
            for index, member in enumerate(value):
                look(member, f"{path}[{index}]")

    look(json.loads(raw, object_pairs_hook=_Pairs), "")
    return list(dict.fromkeys(problems))


def _checked(raw: bytes, decoded: Any) -> Any:
    """A value decoded from JSON. Looked at only when its text has enough brackets to be too deep."""
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return decoded
    level: list[Any] = [decoded]
    for _ in range(MAX_DEPTH + 1):
        level = [
            member
            for holder in level
            for member in (holder.values() if type(holder) is dict else holder)
            if type(member) is dict or type(member) is list
        ]
        if not level:
            return decoded
    raise ValueError(_TOO_DEEP)


def _checked_tree(decoded: Any) -> Any:
    """A value made from YAML, in which aliases may repeat parts, or contain what they are part of."""
    sizes: dict[int, int] = {}
    _size(decoded, sizes, set())
    return decoded


def _size(node: Any, sizes: dict[int, int], above: set[int]) -> int:
    """How many nodes there are once aliases are written out; `above` are the holders of this one."""
    if isinstance(node, (dict, list)):
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in above:
            raise ValueError("an alias contains itself")
        if len(above) > MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        above.add(id(node))
        if isinstance(node, dict) and not all(isinstance(key, str) for key in node):
            raise ValueError("keys must be text")
        size = 1 + sum(_size(member, sizes, above) for member in (node.values() if isinstance(node, dict) else node))
        above.discard(id(node))
        if size > MAX_NODES:
            raise ValueError("document contains excessive aliasing")
        sizes[id(node)] = size
        return size
    if node is None or isinstance(node, (str, bool, int)) or (isinstance(node, float) and math.isfinite(node)):
        return 1
    raise ValueError(f"a value of type {type(node).__name__} cannot be written as JSON")
