"""Ports: which path is answered by whom, what nobody answers, and how a port ends."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator

import aiohttp
import pytest

from bedplate.core import logging
from bedplate.serving import routes
from bedplate.serving.http import Request, Response
from bedplate.serving.routes import Listener, Routes


async def hello(request: Request) -> Response:
    return routes.text(200, f"hello {sorted(routes.values(request).items())}")


async def echo(request: Request) -> Response:
    return Response(200, request.body)


async def below(request: Request, rest: str) -> Response:
    return routes.text(200, f"below {rest}")


async def deeper(request: Request, rest: str) -> Response:
    return routes.text(200, f"deeper {rest}")


async def bug(request: Request) -> Response:
    raise RuntimeError("a secret")


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[Listener, aiohttp.ClientSession]]:
    served = Routes()
    served.add("GET", "/hello", hello)
    served.add("PUT", "/hello", echo)
    served.add("GET", "/bug", bug)
    served.get_below("/all/", below)
    served.get_below("/all/deep/", deeper)
    listener = Listener(served.answer, largest_body=10)
    await listener.open("127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{listener.port}") as session:
        try:
            yield listener, session
        finally:
            await listener.close(1.0)


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/hello", 200, "hello []"),
        ("GET", "/hello?a=1&b&a=2", 200, "hello [('a', ['1', '2']), ('b', [''])]"),
        ("HEAD", "/hello", 200, ""),
        ("PUT", "/hello", 200, "0123456789"),
        ("POST", "/hello", 405, "method not allowed\n"),
        ("GET", "/hello/", 404, "not found\n"),
        ("GET", "/", 404, "not found\n"),
        ("GET", "/all/x/y%20z", 200, "below x/y z"),
        ("GET", "/all/deep/x", 200, "deeper x"),
        ("GET", "/all/deep/", 200, "below deep/"),
        ("GET", "/all/", 404, "not found\n"),
        ("PUT", "/all/x", 405, "method not allowed\n"),
    ],
)
async def test_a_path_is_answered_by_its_handler_or_refused(method: str, path: str, status: int, text: str) -> None:
    body = b"0123456789" if method == "PUT" else None
    async with listening() as (_, session), session.request(method, path, data=body) as answer:
        assert (answer.status, await answer.text()) == (status, text)
        if status == 405:
            assert answer.headers["Allow"] == ("GET, PUT" if path == "/hello" else "GET")


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with listening() as (_, session), session.put("/hello", data=b"x" * 11) as answer:
        assert answer.status == 413


async def test_a_handler_that_fails_is_logged_and_tells_nobody_why() -> None:
    out = io.StringIO()
    logging.configure(logging.LogOptions(color=False), out)
    try:
        async with listening() as (_, session), session.get("/bug") as answer:
            assert (answer.status, await answer.text()) == (500, "internal server error\n")
    finally:
        logging.configure(logging.LogOptions())
    assert "serving.bug" in out.getvalue() and "a secret" in out.getvalue()


async def test_a_port_that_ends_lets_an_answer_in_work_be_finished_and_takes_no_other() -> None:
    is_asked, may_end = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        is_asked.set()
        await may_end.wait()
        return routes.text(200, "done")

    listener = Listener(slow)
    await listener.open("127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{listener.port}") as session:
        asking = asyncio.ensure_future(session.get("/"))
        await is_asked.wait()
        closing = asyncio.ensure_future(listener.close(60.0))
        await asyncio.sleep(0)
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get("/")
        may_end.set()
        async with await asking as answer:
            assert await answer.text() == "done"
        await closing


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with listening() as (listener, _):
        with pytest.raises(OSError):
            await Listener(hello).open("127.0.0.1", listener.port)
