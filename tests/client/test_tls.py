"""The client over TLS: whom it trusts, and how a certificate speaks for it."""

from __future__ import annotations

import contextlib
import datetime
import pathlib
import ssl
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from tests.ui.rest.serving import Served, served

from bedplate.client import HeadClient, Unauthorized
from bedplate.core import errors
from bedplate.head.access import USERS
from bedplate.head.folder.pki import Authority
from bedplate.ui import rest

NOW = datetime.datetime.now(datetime.UTC)


@contextlib.asynccontextmanager
async def secured(folder: pathlib.Path, server: Served) -> AsyncIterator[str]:
    """The head served over TLS, with certificates of an authority in `folder`."""
    authority = Authority.make("basecm10", NOW)
    authority.pair.write(folder, "ca")
    authority.server(["127.0.0.1"], "basecm10", NOW).write(folder, "server")
    authority.client("arno", USERS, NOW).write(folder, "arno")
    authority.client("nobody", USERS, NOW).write(folder, "nobody")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    runner = web.AppRunner(rest.make(server.service), access_log=None, handle_signals=False, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_certificate_or_a_token_says_who_asks(tmp_path: pathlib.Path) -> None:
    async with served(tmp_path) as server, secured(tmp_path, server) as url:
        trust = {"ca_file": str(tmp_path / "ca.crt")}

        def own(name: str) -> dict[str, str]:
            return {"cert_file": str(tmp_path / f"{name}.crt"), "key_file": str(tmp_path / f"{name}.key")}

        async with HeadClient(url, **trust, **own("arno")) as arno:
            who = await arno.whoami()
            assert (who.user, who.role, who.via) == ("arno", "auditor", "certificate")
        async with HeadClient(url, **trust, token=server.tokens["admin"]) as admin:
            assert (await admin.whoami()).user == "admin"
        async with HeadClient(url, **trust, **own("nobody")) as nobody:
            with pytest.raises(Unauthorized):
                await nobody.whoami()


async def test_a_head_of_another_authority_is_not_spoken_to(tmp_path: pathlib.Path) -> None:
    Authority.make("other", NOW).pair.write(tmp_path, "other")
    async with served(tmp_path) as server, secured(tmp_path, server) as url:
        for ca_file in (str(tmp_path / "other.crt"), ""):
            async with HeadClient(url, ca_file=ca_file, token=server.tokens["admin"]) as client:
                with pytest.raises(errors.Denied, match="not trusted") as told:
                    await client.whoami()
                assert told.value.hint


async def test_a_credential_that_cannot_be_read_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").write_text("")
    Authority.make("own", NOW).pair.write(tmp_path, "own")
    pair = {"cert_file": str(tmp_path / "own.crt"), "key_file": str(tmp_path / "own.key")}
    for options, name in (
        ({"ca_file": str(tmp_path / "none")}, "none"),
        ({"cert_file": str(tmp_path / "empty")}, "empty"),
        ({"ca_file": str(tmp_path / "empty"), **pair}, "empty"),
    ):
        with pytest.raises(errors.Denied, match=f"/{name} cannot be read") as told:
            async with HeadClient("https://127.0.0.1:1", **options) as client:
                await client.whoami()
        assert told.value.hint
