"""A raw HTTP client for the conformance suite, on aiohttp alone: the judge shares no code with what it judges.

In: a `Server`. Out: `Reply` values (status, headers, bytes) and `Watch` streams. It knows paths, bodies and headers,
nothing about kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from tests import servers, waiting

Json = Any

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

REQUEST_TIMEOUT_S = EVENT_TIMEOUT_S = waiting.DEADLINE_S
QUIET_S = 0.7
"""How long a watch must stay silent before a test says that nothing came."""


class Reply:
    """An answer: status, headers (case does not matter), body."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def warnings(self) -> list[str]:
        return list(self.headers.getall("Warning", []))

    def expect(self, *statuses: int) -> Json:
        """The JSON of the answer; fails with the whole answer when the status is none of these."""
        assert self.status in statuses, f"status {self.status}, wanted {statuses}: {self.body[:2000]!r}"
        is_json = self.headers.get("Content-Type", "").startswith(JSON)
        return self.json if self.body and is_json else None

    def fails(self, code: int, reason: str | None) -> Json:
        """The Status object of a refusal with this code and reason."""
        status = self.expect(code)
        assert status["kind"] == "Status", status
        assert status["apiVersion"] == "v1", status
        assert status["status"] == "Failure", status
        assert status["code"] == code, status
        assert status.get("reason") == reason, status
        return status

    def __repr__(self) -> str:
        return f"<Reply {self.status} {self.body[:500]!r}>"


class Watch:
    """Events of one watch connection, in order."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self._buffer = b""

    async def _line(self) -> bytes | None:
        while b"\n" not in self._buffer:
            chunk = await self.response.content.readany()
            if not chunk:
                return self._buffer.strip() or None
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    async def next(self, timeout_s: float = EVENT_TIMEOUT_S) -> Json:
        """The next event; fails when the server ends the stream or stays silent."""
        line = await asyncio.wait_for(self._line(), timeout_s)
        assert line is not None, "the server ended the watch"
        return json.loads(line)

    async def next_change(self, timeout_s: float = EVENT_TIMEOUT_S) -> Json:
        """The next event that is not a bookmark."""
        while True:
            event = await self.next(timeout_s)
            if event["type"] != "BOOKMARK":
                return event

    async def take(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next events that are not bookmarks."""
        return [
            (event["type"], event["object"]["metadata"]["name"])
            for event in [await self.next_change() for _ in range(count)]
        ]

    async def is_quiet(self, seconds: float = QUIET_S) -> bool:
        """True when nothing but bookmarks comes for so long."""
        try:
            await self.next_change(seconds)
        except TimeoutError:
            return True
        return False

    async def ended(self, timeout_s: float = EVENT_TIMEOUT_S) -> list[Json]:
        """All remaining events until the server ends the stream."""
        events = []
        async with asyncio.timeout(timeout_s):
            while (line := await self._line()) is not None:
                events.append(json.loads(line))
        return events


class Api:
    """Requests to one server as one user."""

    def __init__(
        self, server: servers.Server, session: aiohttp.ClientSession, headers: dict[str, str] | None = None
    ) -> None:
        self.server = server
        self.session = session
        self.headers = headers or {}

    def with_headers(self, **headers: str) -> Api:
        return Api(self.server, self.session, {**self.headers, **headers})

    def impersonate(self, user: str, *groups: str) -> ImpersonatingApi:
        return ImpersonatingApi(self, user, groups)

    def header_list(self, extra: dict[str, str]) -> list[tuple[str, str]]:
        return list({**self.headers, **extra}.items())

    def _arguments(
        self, path: str, body: Json, content_type: str, accept: str, headers: dict[str, str], params: dict[str, Any]
    ) -> dict[str, Any]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        extra = {"Accept": accept, **headers}
        if data is not None:
            extra["Content-Type"] = content_type
        text_params = [
            (key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in params.items()
        ]
        return {
            "url": self.server.url + path,
            "data": data,
            "headers": self.header_list(extra),
            "params": text_params,
        }

    async def request(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        headers: dict[str, str] | None = None,
        **params: Any,
    ) -> Reply:
        arguments = self._arguments(path, body, content_type, accept, headers or {}, params)
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            async with self.session.request(method, **arguments) as response:
                return Reply(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: Json, **options: Any) -> Reply:
        return await self.request("POST", path, body, **options)

    async def put(self, path: str, body: Json, **options: Any) -> Reply:
        return await self.request("PUT", path, body, **options)

    async def delete(self, path: str, body: Json = None, **options: Any) -> Reply:
        return await self.request("DELETE", path, body, **options)

    async def patch(self, path: str, body: Json, content_type: str = MERGE_PATCH, **options: Any) -> Reply:
        return await self.request("PATCH", path, body, content_type=content_type, **options)

    async def apply(self, path: str, body: Json, manager: str = "tester", **options: Any) -> Reply:
        return await self.request("PATCH", path, body, content_type=APPLY_PATCH, fieldManager=manager, **options)

    async def create(self, path: str, body: Json, **options: Any) -> Json:
        """POST that must succeed; the created object."""
        return (await self.post(path, body, **options)).expect(201)

    async def read(self, path: str, **options: Any) -> Json:
        """GET that must succeed; the object or list."""
        return (await self.get(path, **options)).expect(200)

    async def names(self, path: str, **options: Any) -> list[str]:
        """Names of a list's items, in the server's order."""
        return [item["metadata"]["name"] for item in (await self.read(path, **options))["items"]]

    @contextlib.asynccontextmanager
    async def watch(self, path: str, *, accept: str = JSON, **params: Any) -> AsyncIterator[Watch]:
        arguments = self._arguments(path, None, JSON, accept, {}, {"watch": "true", **params})
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_S)
        async with self.session.get(**arguments, timeout=timeout) as response:
            if response.status != 200:
                raise AssertionError(f"watch answered {response.status}: {await response.text()}")
            yield Watch(response)


class ImpersonatingApi(Api):
    """The administrator impersonating another user (headers may repeat, so they are a list)."""

    def __init__(self, base: Api, user: str, groups: tuple[str, ...]) -> None:
        super().__init__(base.server, base.session, base.headers)
        self._identity = [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]

    def header_list(self, extra: dict[str, str]) -> list[tuple[str, str]]:
        return super().header_list(extra) + self._identity
