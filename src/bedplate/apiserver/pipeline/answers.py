"""Last stage: how an answer looks on the wire.

In: the JSON of an object or list, the form a client asked for, warnings, errors. Out: `http.Response` values in that
form, large ones compressed where the client takes it.
"""

from __future__ import annotations

import asyncio
import collections
import gzip
from collections.abc import Awaitable, Sequence

from bedplate.apiserver import status
from bedplate.apiserver.state import bodies
from bedplate.apiserver.wire import codec
from bedplate.serving import http

__all__ = ["Answers", "failure", "written"]

GZIP_FROM_BYTES = 128 * 1024
_GZIP_LEVEL = 1
_ZIPPED_KEPT = 8
_ZIPPED_BYTES = 8 * 1024 * 1024


def written(wish: codec.Wanted, code: int, body: bytes, warnings: Sequence[str]) -> http.Response:
    """The answer to a write."""
    encoded, media = codec.encode(wish, body)
    headers = tuple(("Warning", f"299 - {_quoted(text)}") for text in dict.fromkeys(warnings))
    return http.Response(code, encoded, media, headers)


def failure(err: status.StatusError, incoming: http.Request) -> http.Response:
    """A `Status` in the form the client reads."""
    wish = codec.wanted(incoming.header(b"accept")) or codec.Wanted()
    body, media = codec.encode(wish, bodies.encode(err.document()))
    return http.Response(err.code, body, media, tuple(err.headers))


class Answers:
    """The answers to reads; remembers what it has compressed, because lists are read again and again."""

    def __init__(self) -> None:
        self._zipped: collections.OrderedDict[int, tuple[bytes, bytes]] = collections.OrderedDict()

    def read(
        self, incoming: http.Request, wish: codec.Wanted, body: bytes | Awaitable[bytes], media: str = codec.JSON
    ) -> http.Answer | Awaitable[http.Answer]:
        if not isinstance(body, bytes):
            return self._read_later(incoming, wish, body, media)
        if media == codec.PROTOBUF:
            return self.compressed(incoming, http.Response(200, body, media))
        encoded, media = (
            (body, codec.JSON) if wish.media == codec.JSON and not wish.is_pretty else codec.encode(wish, body)
        )
        return self.compressed(incoming, http.Response(200, encoded, media))

    async def _read_later(
        self, incoming: http.Request, wish: codec.Wanted, body: Awaitable[bytes], media: str
    ) -> http.Answer:
        answer = self.read(incoming, wish, await body, media)
        return answer if isinstance(answer, (http.Response, http.Stream)) else await answer

    def compressed(self, incoming: http.Request, answer: http.Response) -> http.Answer | Awaitable[http.Answer]:
        accepted = incoming.headers.get(b"accept-encoding", b"")
        if len(answer.body) < GZIP_FROM_BYTES or b"gzip" not in accepted:
            return answer
        return self._zip(answer)

    async def _zip(self, answer: http.Response) -> http.Answer:
        known = self._zipped.get(id(answer.body))
        if known is None:
            zipped = await asyncio.to_thread(gzip.compress, answer.body, _GZIP_LEVEL)
            if len(answer.body) > _ZIPPED_BYTES:
                return _zipped_response(answer, zipped)
            # Holding the body keeps its id from being used again.
            known = self._zipped[id(answer.body)] = (answer.body, zipped)
            if len(self._zipped) > _ZIPPED_KEPT:
                self._zipped.popitem(last=False)
        return _zipped_response(answer, known[1])


def _zipped_response(answer: http.Response, zipped: bytes) -> http.Response:
    headers = (*answer.headers, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
    return http.Response(answer.code, zipped, answer.content_type, headers)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'
