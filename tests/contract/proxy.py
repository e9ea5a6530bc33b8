"""A proxy between a provider and a cloud that holds the vendor's document against every request and answer.

    async with ValidatingProxy(cloud.url, "oxide") as proxy:
        ...                               # point the provider at proxy.url
        proxy.assert_clean()              # or look at proxy.violations
        proxy.seen["instance_view"]       # how often an operation was called

In: requests. Out: the cloud's answers, unchanged, and a list of violations. Answers that a simulated cloud has spoilt
on purpose (they carry `X-Simulated-Fault`) are passed on unchecked; a connection that the cloud cuts is cut here too.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from tests.contract import documents
from tests.contract.contract import Contract, Operation

FAULT_HEADER = "X-Simulated-Fault"
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host", "content-length"})


@dataclass(frozen=True)
class Violation:
    """Something the document does not allow."""

    side: str
    operation: str
    request: str
    problem: str

    def __str__(self) -> str:
        return f"{self.side} {self.operation} ({self.request}): {self.problem}"


class ValidatingProxy:
    """An HTTP proxy for one upstream, with the document of one vendor."""

    def __init__(self, upstream: str, contract: Contract | str) -> None:
        self._upstream = upstream.rstrip("/")
        self._contract = documents.load(contract) if isinstance(contract, str) else contract
        self.url = ""
        self.violations: list[Violation] = []
        self.seen: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        # A fault of the cloud must look the same through the proxy: no limit of time, and no second try.
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)
        )
        # aiohttp has no public word for it, and its own test client does the same.
        self._session._retry_connection = False
        self._runner = web.ServerRunner(web.Server(self._serve, handler_cancellation=True), shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # First the session: what hangs upstream ends, and then the server has nobody to wait for.
        await self._session.close()
        await self._runner.cleanup()

    def assert_clean(self) -> None:
        """Fail with every violation, if there is one."""
        assert not self.violations, "\n".join(str(each) for each in dict.fromkeys(self.violations))

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        body = await http.read()
        operation = self._check_request(http, body)
        headers = {name: value for name, value in http.headers.items() if name.lower() not in _HOP}
        response: web.StreamResponse | None = None
        try:
            async with self._session.request(
                http.method, self._upstream + http.raw_path, data=body or None, headers=headers, allow_redirects=False
            ) as answer:
                response = web.StreamResponse(status=answer.status, headers=_end_to_end(answer))
                if FAULT_HEADER in answer.headers:
                    await response.prepare(http)
                    async for piece in answer.content.iter_any():
                        await response.write(piece)
                else:
                    content = await answer.read()
                    self._check_answer(http, operation, answer, content)
                    await response.prepare(http)
                    if content:
                        await response.write(content)
                await response.write_eof()
                return response
        except (TimeoutError, aiohttp.ClientError, ConnectionError):
            _cut(http)
            return response or web.Response()

    def _check_request(self, http: web.BaseRequest, body: bytes) -> Operation | None:
        if self._contract.is_foreign(http.path):
            return None
        found = self._contract.find(http.method, http.rel_url.raw_path)
        if found is None:
            self._violate("request", "?", http, "no such path and method in the document")
            return None
        operation, params = found
        self.seen[operation.id] += 1
        problems = self._contract.check_request(operation, params, list(http.query.items()), body)
        if not http.headers.get("Authorization", "").startswith("Bearer "):
            problems.append("no bearer token")
        for problem in problems:
            self._violate("request", operation.id, http, problem)
        return operation

    def _check_answer(
        self, http: web.BaseRequest, operation: Operation | None, answer: aiohttp.ClientResponse, body: bytes
    ) -> None:
        if operation is not None:
            for problem in self._contract.check_answer(operation, answer.status, answer.headers, body):
                self._violate("answer", operation.id, http, problem)

    def _violate(self, side: str, operation: str, http: web.BaseRequest, problem: str) -> None:
        self.violations.append(Violation(side, operation, f"{http.method} {http.raw_path}", problem))


def _end_to_end(answer: aiohttp.ClientResponse) -> dict[str, str]:
    kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
    if "Content-Length" in answer.headers:
        kept["Content-Length"] = answer.headers["Content-Length"]
    return kept


def _cut(http: web.BaseRequest) -> None:
    if http.transport is not None:
        connection = http.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        http.transport.abort()
