"""The body of a request as the object it means.

In: a request and what it is for. Out: decoded objects; 400, 415 and 422 where there is none in it.
"""

from __future__ import annotations

from collections.abc import Callable

from bedplate.apiserver import meta
from bedplate.apiserver.merge import patches
from bedplate.apiserver.pipeline import routes
from bedplate.apiserver.state import bodies
from bedplate.apiserver.verbs import patch, request, strictness
from bedplate.apiserver.wire import codec, http

__all__ = ["Payloads"]


class Payloads:
    """Decodes bodies; `decoder` reads those in protobuf."""

    def __init__(self, decoder: codec.Decoder) -> None:
        self._decoder = decoder

    def decode(self, incoming: http.Request, *, find_duplicates: bool = False) -> codec.Body:
        """The body by its content type."""
        content_type = incoming.header(b"content-type")
        return codec.decode_body(content_type, incoming.body, self._decoder, find_duplicates=find_duplicates)

    def object(self, incoming: http.Request, target: request.Target) -> bodies.Object:
        """The body as an object of the target's kind, without unknown fields."""
        body = self.decode(incoming, find_duplicates=target.field_validation != "Ignore")
        obj = meta.check_object(target.resource, body.object)
        return obj if body.is_protobuf else strictness.checked(target, obj, body.problems)

    def preview(self, incoming: http.Request, info: routes.RequestInfo, target: request.Target) -> bodies.Object | None:
        """The body for a behaviour's own handler: decoded, a patch as the object it leads to."""
        if not incoming.body:
            return None
        if info.verb == "patch":
            return patch.preview(target, incoming.header(b"content-type"), incoming.body)
        body = self.decode(incoming).object
        return body if isinstance(body, dict) else None

    def scale_change(
        self, incoming: http.Request, info: routes.RequestInfo
    ) -> Callable[[bodies.Object], bodies.Object]:
        """What the body makes of a Scale."""
        if info.verb == "patch":
            body = codec.decode_patch(incoming.body)
            if incoming.header(b"content-type").startswith(patch.JSON_PATCH):
                return lambda old: patches.json_patch(old, body)
            return lambda old: patches.merge_patch(old, body)
        asked = self.decode(incoming).object
        return lambda _old: asked
