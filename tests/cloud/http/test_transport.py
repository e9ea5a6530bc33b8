"""TLS, proxies, redirects: who hears our token, and what failures say."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.cloud.http.leaping import LeapingClock
from tests.kube.certs import Authority
from tests.kube.scripted import Answer, serving

from bedplate.cloud.http import errors
from bedplate.cloud.http.client import Call, Client, Options
from bedplate.cloud.http.secrets import Secret
from bedplate.cloud.http.tokens import FixedToken
from bedplate.cloud.http.transport import Reach
from bedplate.cloud.metrics import CloudApiMetrics

TOKEN = "tok-4711-very-secret"
GET = Call("GET", "/things/1", "get-thing")
POST = Call("POST", "/things", "create-thing", body={})


def client_of(endpoint: str, reach: Reach) -> Client:
    return Client(
        Options(provider="test", endpoint=endpoint, reach=reach),
        FixedToken(Secret(TOKEN)),
        metrics=CloudApiMetrics(CollectorRegistry()),
        time=LeapingClock(),
    )


async def test_a_private_authority_is_trusted_when_named_and_not_otherwise(tmp_path: Path) -> None:
    authority = Authority()
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(authority.pem)
    async with serving([Answer(200, {"id": "1"})], authority.server_context(tmp_path, "127.0.0.1")) as server:
        for reach, is_trusted in (
            (Reach(), False),
            (Reach(ca_file=str(bundle)), True),
            (Reach(is_insecure=True), True),
            (Reach(ca_file=str(tmp_path / "missing.pem")), False),
        ):
            client = client_of(server.url, reach)
            if is_trusted:
                assert (await client.call(GET)).data == {"id": "1"}
            else:
                with pytest.raises(errors.Transport) as caught:
                    await client.call(GET)
                assert not caught.value.is_sent
            await client.close()
    assert len(server.asked) == 2, "nobody untrusted was sent a token"


async def test_a_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    authority = Authority()
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(authority.pem)
    async with serving([Answer(200, {})], authority.server_context(tmp_path, "other.example.com")) as server:
        client = client_of(server.url, Reach(ca_file=str(bundle)))
        with pytest.raises(errors.Transport):
            await client.call(GET)
        await client.close()
    assert server.asked == []


async def test_the_environments_proxy_is_used_unless_no_proxy_covers_the_endpoint() -> None:
    async with serving([Answer(200, {"id": "1"})]) as proxy:
        environ = {"HTTP_PROXY": proxy.url.replace("://", "://user:pass@")}
        # An address of this machine that is not called loopback, and where nobody listens.
        client = client_of("http://0.0.0.0:1/base", Reach(environ=environ))
        assert (await client.call(GET)).data == {"id": "1"}
        await client.close()
        assert proxy.asked[0].target == "http://0.0.0.0:1/base/things/1"
        assert proxy.asked[0].headers["proxy-authorization"].startswith("Basic ")
        client = client_of("http://0.0.0.0:1/base", Reach(environ=environ | {"NO_PROXY": ".example.com,0.0.0.0"}))
        with pytest.raises(errors.Transport):
            await client.call(GET)
        await client.close()
        assert len(proxy.asked) == 1


async def test_a_proxy_that_refuses_the_tunnel_hears_and_shows_no_secret() -> None:
    async with serving([Answer(407, {})]) as proxy:
        environ = {"HTTPS_PROXY": proxy.url.replace("://", "://user:pass@")}
        client = client_of("https://cloud.invalid", Reach(environ=environ))
        with pytest.raises(errors.Transport) as caught:
            await client.call(POST)
        await client.close()
    assert all(asked.method == "CONNECT" and "authorization" not in asked.headers for asked in proxy.asked)
    assert len(proxy.asked) == 4 and not caught.value.is_sent, "nothing was sent, so a change may be tried again"
    assert "407" in str(caught.value) and "pass" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


async def test_a_proxy_of_an_unknown_kind_is_an_error() -> None:
    client = client_of("http://cloud.invalid", Reach(environ={"HTTP_PROXY": "socks5://127.0.0.1:1"}))
    with pytest.raises(errors.Transport, match="socks5"):
        await client.call(GET)
    await client.close()


async def test_a_redirect_is_not_followed() -> None:
    async with (
        serving([Answer(200, {})]) as elsewhere,
        serving([Answer(307, b"", {"Location": elsewhere.url})]) as server,
    ):
        client = client_of(server.url, Reach())
        with pytest.raises(errors.Protocol):
            await client.call(GET)
        await client.close()
    assert elsewhere.asked == [], "the token goes to the endpoint only"


@pytest.mark.parametrize("status", [400, 404, 500, 302])
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
async def test_a_server_that_repeats_the_token_does_not_get_it_into_errors(status: int, kind: str) -> None:
    long = "x" * 290 + TOKEN
    body = [
        f'{{"message": "{long}", "data": {{"{TOKEN}": ["{TOKEN}"]}}, "request_id": "{TOKEN}"}}'.encode(),
        long.encode(),
    ][kind == "text/plain"]
    async with serving([Answer(status, body, {"Content-Type": kind, "X-Request-Id": f"r-{TOKEN}"})]) as server:
        client = client_of(server.url, Reach())
        with pytest.raises(errors.ApiError) as caught:
            await client.call(POST)
        await client.close()
    error = caught.value
    shown = [repr(error), str(error), repr(vars(error)), repr(error.subject), repr(error.body), repr(vars(client))]
    # Not even its beginning, where a message was cut.
    assert not any(TOKEN[:6] in text for text in shown)


async def test_after_the_end_nothing_is_sent() -> None:
    async with serving([Answer(200, {})]) as server:
        client = client_of(server.url, Reach())
        await client.call(GET)
        await client.close()
        with pytest.raises(errors.Transport, match="closed"):
            await client.call(POST)
        assert len(server.asked) == 1
