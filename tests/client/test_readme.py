"""The example in the package's docstring runs against a real head."""

from __future__ import annotations

import asyncio
import inspect
import pathlib
import textwrap

import pytest
from tests.ui.rest.serving import served

import bedplate.client
from bedplate.api import headapi


async def test_the_example_of_the_docstring_works(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = inspect.getdoc(bedplate.client) or ""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("    import"))
    last = next(number for number, line in enumerate(lines) if "asyncio.run" in line)
    source = textwrap.dedent("\n".join(lines[first:last]))
    async with served(tmp_path) as server:
        source = source.replace("https://head:8443", server.url).replace("bph_…", server.tokens["admin"])
        source = source.replace(', ca_file="ca.crt"', "").replace('"gpu"', '"gpu-nodes"')
        names: dict[str, object] = {}
        exec(compile(source, "example", "exec"), names)
        running = asyncio.create_task(names["main"]())  # type: ignore[operator]
        said = ""
        try:
            async with asyncio.timeout(120), server.client("node001") as node:
                while "Service nginx was reloaded" not in said and not running.done():
                    await node.report(
                        "node001", actions=[headapi.Action(kind="service", name="nginx", verb="reloaded")]
                    )
                    await asyncio.sleep(0.05)
                    said += capsys.readouterr().out
            assert not running.done() or running.result() is None
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert "node001 default" in said
        assert server.head.tree.get(("device", "node001")).values["category"] == "gpu-nodes"
