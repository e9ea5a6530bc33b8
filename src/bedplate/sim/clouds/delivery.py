"""Puts answers on the wire, in good weather and in bad.

In: the aiohttp request, the cloud's reply (or none, when a fault comes before it) and the faults. Out: bytes, late
bytes, half of the bytes, or a cut connection. The waiting here is the network's and is real, whatever clock the cloud
lives by.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable

from aiohttp import web

from bedplate.sim.clouds.exchange import Refused, Reply, Request, encode
from bedplate.sim.clouds.faults import STATUS_KINDS, Fault

__all__ = ["FAULT_HEADER", "Cut", "hang", "prepare", "replace", "reset", "send"]

FAULT_HEADER = "X-Simulated-Fault"
"""Marks answers that a fault has spoilt, so that a check of answers against a document leaves them alone."""
_SLOW_PIECES = 20
_PAGE = b"<html><head><title>404 Not Found</title></head><body><center><h1>404 Not Found</h1></center></body></html>"
_SAYINGS = {
    "401": "Authorization token in request has expired",
    "403": "User is not allowed to perform this action",
    "408": "Request timed out",
    "409": "The request conflicts with another one",
    "429": "Request rate limit exceeded, please re-evaluate your request patterns",
    "500": "Internal error",
    "502": "Bad gateway",
    "503": "Service is not available",
    "504": "Gateway timed out",
}


class Cut(Exception):
    """The connection was cut; there is nothing to send."""


async def prepare(request: Request, faults: list[Fault], rng: random.Random) -> None:
    """What befalls a request before the cloud sees it: delay, and lists that are not what they should be."""
    for fault in faults:
        if fault.kind == "latency":
            await asyncio.sleep(fault.by_s + rng.random() * fault.jitter_s)
        elif fault.kind == "stale-list":
            request.stale_s = max(request.stale_s, fault.age_s)
        elif fault.kind == "drop-from-list":
            request.dropped = (*request.dropped, fault.drops)


def replace(fault: Fault, refuse: Callable[[Refused, Request], Reply], request: Request) -> Reply | None:
    """The answer that a fault gives instead of the cloud's own; None when the cloud is to answer."""
    headers = {} if fault.retry_after_s is None else {"Retry-After": f"{fault.retry_after_s:g}"}
    if fault.kind in STATUS_KINDS:
        refused = Refused(int(fault.kind), fault.message or _SAYINGS[fault.kind])
        return refuse(refused, request).with_headers(headers)
    if fault.kind != "generic-404":
        return None
    if fault.style == "html":
        return Reply(404, _PAGE, "text/html")
    if fault.style == "plain":
        return Reply(404, b"404 page not found\n", "text/plain")
    return refuse(Refused(404, "", code=fault.style), request)


def spoil(fault: Fault, reply: Reply) -> Reply:
    """What a fault makes of the cloud's own answer."""
    if fault.kind == "truncated-json":
        return Reply(reply.status, reply.body[: len(reply.body) // 2], reply.content_type, reply.headers)
    if fault.kind == "wrong-json":
        wrong: object = {"unexpected": True} if reply.body.startswith(b"[") else [42]
        return Reply(reply.status, encode(wrong), reply.content_type, reply.headers)
    if fault.kind == "wrong-content-type":
        return Reply(reply.status, reply.body, "text/html", reply.headers)
    if fault.kind == "drop-header":
        kept = {name: value for name, value in reply.headers.items() if name.lower() != fault.header.lower()}
        return Reply(reply.status, reply.body, reply.content_type, kept)
    return reply


async def send(http: web.BaseRequest, reply: Reply, fault: Fault | None) -> web.StreamResponse:
    """Put the answer on the wire."""
    if fault is not None and not fault.is_additive:
        reply = spoil(fault, reply).with_headers({FAULT_HEADER: fault.kind})
        if fault.kind == "slow-body":
            return await _trickle(http, reply, fault.over_s)
    headers = {"Content-Type": reply.content_type, **reply.headers} if reply.body else dict(reply.headers)
    return web.Response(status=reply.status, body=reply.body or None, headers=headers)


async def _trickle(http: web.BaseRequest, reply: Reply, over_s: float) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status, headers={"Content-Type": reply.content_type, **reply.headers})
    response.content_length = len(reply.body)
    await response.prepare(http)
    step = max(1, len(reply.body) // _SLOW_PIECES)
    pieces = [reply.body[start : start + step] for start in range(0, len(reply.body), step)]
    for piece in pieces:
        await asyncio.sleep(over_s / len(pieces))
        await response.write(piece)
    await response.write_eof()
    return response


async def hang(http: web.BaseRequest, fault: Fault, closing: asyncio.Event) -> None:
    """Say nothing until the client goes away, the cloud closes, or the fault's own time is over."""
    try:
        async with asyncio.timeout(fault.after_s):
            await closing.wait()
    except TimeoutError:
        pass
    if http.transport is not None:
        http.transport.abort()
    raise Cut


def reset(http: web.BaseRequest) -> None:
    """Reset the connection: with no time to linger, closing a socket sends RST instead of FIN."""
    if http.transport is not None:
        connection = http.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        http.transport.abort()
    raise Cut
