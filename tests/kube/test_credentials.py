"""Credentials that renew themselves: token files and exec plugins."""

from __future__ import annotations

import asyncio
import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.kube.certs import Authority, common_name
from tests.kube.scripted import Answer, Asked, node, serving, status
from tests.waiting import until

from bedplate.api.resources import NODES
from bedplate.core import clock
from bedplate.kube import Client, ClientConfig, errors, execplugin
from bedplate.kube.config import AuthConfig, ExecConfig, TLSConfig
from bedplate.kube.credentials import TOKEN_FILE_PERIOD_S, Identity, TokenFile, make

V1 = "client.authentication.k8s.io/v1"


async def test_a_rotated_token_is_read_after_a_minute(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    time = clock.ManualClock()
    source = TokenFile(str(file), "", time)
    assert (await source.current()).authorization == "Bearer one"
    file.write_text("two\n")
    assert (await source.current()).authorization == "Bearer one"
    await time.advance(TOKEN_FILE_PERIOD_S)
    assert (await source.current()).authorization == "Bearer two"


async def test_the_last_token_serves_while_the_file_is_away_and_the_fallback_before(tmp_path: Path) -> None:
    file = tmp_path / "token"
    time = clock.ManualClock()
    assert (await TokenFile(str(file), "fallback", time).current()).authorization == "Bearer fallback"
    with pytest.raises(errors.CredentialsFailed, match="token"):
        await TokenFile(str(file), "", time).current()
    file.write_text("one")
    source = TokenFile(str(file), "", time)
    await source.current()
    file.unlink()
    await time.advance(TOKEN_FILE_PERIOD_S)
    assert (await source.current()).authorization == "Bearer one"


def plugin(folder: Path, *bodies: dict[str, object], extra: str = "") -> ExecConfig:
    """A plugin that prints one document after the other, the last forever, and notes each run with its environment."""
    script = folder / "plugin.sh"
    for number, body in enumerate(bodies):
        (folder / f"answer-{number}").write_text(json.dumps(body))
    last = len(bodies) - 1
    script.write_text(
        f"""#!/bin/sh
cd {folder}
n=$(cat runs 2>/dev/null | wc -l)
printf '%s\\n' "$KUBERNETES_EXEC_INFO" >> runs
printf '%s\\n' "$PLUGIN_MODE" >> modes
{extra}
[ "$n" -gt {last} ] && n={last}
cat answer-$n
"""
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return ExecConfig(str(script), env={"PLUGIN_MODE": "quiet"}, api_version=V1, interactive_mode="Never")


def credential(token: str = "", expires: datetime | None = None, **more: str) -> dict[str, object]:
    found: dict[str, object] = dict(more)
    if token:
        found["token"] = token
    if expires:
        found["expirationTimestamp"] = clock.rfc3339(expires)
    return {"kind": "ExecCredential", "apiVersion": V1, "status": found}


def runs(folder: Path) -> list[str]:
    file = folder / "runs"
    return file.read_text().splitlines() if file.exists() else []


def source_of(config: ExecConfig, time: clock.Clock, **settings: object) -> execplugin.ExecCredentials:
    whole = ClientConfig("https://example.com", auth=AuthConfig(exec=config), **settings)  # type: ignore[arg-type]
    return execplugin.ExecCredentials(whole, config, time, has_terminal=lambda: False)


async def test_a_plugin_runs_once_until_its_credential_is_about_to_expire(tmp_path: Path) -> None:
    time = clock.ManualClock()
    expires = time.now() + timedelta(seconds=100)
    source = source_of(plugin(tmp_path, credential("one", expires), credential("two")), time)
    both = await asyncio.gather(source.current(), source.current())
    assert [identity.authorization for identity in both] == ["Bearer one", "Bearer one"]
    assert len(runs(tmp_path)) == 1
    await time.advance(95)
    assert (await source.current()).authorization == "Bearer two"
    await time.advance(100_000)
    assert (await source.current()).authorization == "Bearer two"
    assert len(runs(tmp_path)) == 2


async def test_a_refused_credential_runs_the_plugin_once_for_all_who_were_refused(tmp_path: Path) -> None:
    source = source_of(plugin(tmp_path, credential("one"), credential("two")), clock.SystemClock())
    refused = await source.current()
    assert await asyncio.gather(*(source.renew(refused) for _ in range(3))) == [True, True, True]
    assert (await source.current()).authorization == "Bearer two"
    assert len(runs(tmp_path)) == 2


async def test_a_plugin_that_repeats_a_refused_credential_is_no_renewal(tmp_path: Path) -> None:
    source = source_of(plugin(tmp_path, credential("one")), clock.SystemClock())
    assert not await source.renew(await source.current())


async def test_the_plugin_learns_of_its_cluster_only_when_it_asked(tmp_path: Path) -> None:
    asking = plugin(tmp_path, credential("one"))
    asking = ExecConfig(
        asking.command,
        env=asking.env,
        interactive_mode="Never",
        provide_cluster_info=True,
        cluster_config={"audience": "x"},
    )
    await source_of(plugin(tmp_path, credential("one")), clock.SystemClock()).current()
    tls = TLSConfig(ca_data=b"CA", server_name="api")
    await source_of(asking, clock.SystemClock(), tls=tls).current()
    quiet, told = (json.loads(line) for line in runs(tmp_path))
    assert quiet == {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False}}
    assert told["spec"]["cluster"] == {
        "server": "https://example.com",
        "tls-server-name": "api",
        "certificate-authority-data": "Q0E=",
        "config": {"audience": "x"},
    }
    assert (tmp_path / "modes").read_text() == "quiet\nquiet\n"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"kind": "Pod", "apiVersion": "v1"}, "not client.authentication"),
        ({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1"}, "v1beta1"),
        ({"kind": "ExecCredential", "apiVersion": V1}, "no status"),
        (credential(), "neither"),
        (credential(clientCertificateData="x"), "without its key"),
    ],
)
async def test_output_that_is_no_credential_says_why(tmp_path: Path, body: dict[str, object], fault: str) -> None:
    with pytest.raises(errors.CredentialsFailed, match=fault):
        await source_of(plugin(tmp_path, body), clock.SystemClock()).current()


async def test_a_plugin_that_fails_is_quoted(tmp_path: Path) -> None:
    failing = plugin(tmp_path, credential("x"), extra="echo 'log in first' >&2; exit 3")
    with pytest.raises(errors.CredentialsFailed, match="exited with 3: log in first"):
        await source_of(failing, clock.SystemClock()).current()


async def test_a_plugin_that_is_not_there_gives_its_install_hint() -> None:
    missing = ExecConfig("/no/such/plugin", install_hint="install it", interactive_mode="Never")
    with pytest.raises(errors.CredentialsFailed) as caught:
        await source_of(missing, clock.SystemClock()).current()
    assert caught.value.hint == "install it"


async def test_a_plugin_that_always_needs_a_person_is_refused_without_terminal(tmp_path: Path) -> None:
    needy = ExecConfig(plugin(tmp_path, credential("x")).command, interactive_mode="Always")
    with pytest.raises(errors.CredentialsFailed, match="terminal"):
        await source_of(needy, clock.SystemClock()).current()
    assert runs(tmp_path) == []


def test_token_and_certificate_can_come_together() -> None:
    body = json.dumps(credential("t", datetime(2026, 1, 1, tzinfo=UTC), clientCertificateData="C", clientKeyData="K"))
    identity, expires = execplugin.parse_credential(body.encode(), V1)
    assert identity == Identity("Bearer t", (b"C", b"K"))
    assert expires == datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_refused_plugin_token_is_renewed_within_the_request(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Answer:
        fresh = asked.headers["authorization"] == "Bearer two"
        return Answer(200, node("a")) if fresh else status(401, "Unauthorized")

    config = plugin(tmp_path, credential("one"), credential("two"))
    async with serving(answer) as server, Client(ClientConfig(server.url, auth=AuthConfig(exec=config))) as client:
        assert (await client.get(NODES, "a")).name == "a"


async def test_a_certificate_of_a_plugin_is_presented_and_its_successor_too(tmp_path: Path) -> None:
    ours = Authority()
    pairs = [ours.issue(name) for name in ("first", "second")]
    bodies = [credential(clientCertificateData=pair.cert.decode(), clientKeyData=pair.key.decode()) for pair in pairs]

    def answer(asked: Asked) -> Answer:
        return Answer(200, node("a")) if common_name(asked.certificate) == "second" else status(401, "Unauthorized")

    context = ours.server_context(tmp_path, "127.0.0.1", wants_client=True)
    config = plugin(tmp_path, *bodies)
    async with serving(answer, context) as server:
        settings = ClientConfig(server.url, auth=AuthConfig(exec=config), tls=TLSConfig(ca_data=ours.pem))
        async with Client(settings) as client:
            assert (await client.get(NODES, "a")).name == "a"
    assert [common_name(asked.certificate) for asked in server.asked] == ["first", "second"]


async def test_a_plugin_that_prints_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execplugin, "PLUGIN_TIMEOUT_S", 1.0)
    slow = plugin(tmp_path, credential("x"), extra="echo $$ > pid; exec sleep 600")
    with pytest.raises(errors.CredentialsFailed, match="nothing"):
        await source_of(slow, clock.SystemClock()).current()
    pid = tmp_path / "pid"
    assert not pid.exists() or not Path(f"/proc/{pid.read_text().strip()}").exists()


async def test_giving_up_ends_the_plugin_and_the_next_request_runs_it_again(tmp_path: Path) -> None:
    flag = tmp_path / "slow"
    flag.write_text("")
    config = plugin(tmp_path, credential("one"), extra="echo $$ > pid; [ -e slow ] && exec sleep 600")
    source = source_of(config, clock.SystemClock())
    waiting = asyncio.ensure_future(source.current())
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    flag.unlink()
    assert (await source.current()).authorization == "Bearer one"


async def test_tokens_from_code_are_asked_for_each_time_and_replaced_when_refused() -> None:
    given = ["one"]

    async def source(refused: str) -> str:
        if refused == given[-1] and len(given) < 2:
            given.append("two")
        return given[-1]

    made = make(ClientConfig("https://x", auth=AuthConfig(token_source=source, token="unused")), clock.ManualClock())
    first = await made.current()
    assert first.authorization == "Bearer one"
    assert await made.renew(first)
    second = await made.current()
    assert second.authorization == "Bearer two"
    assert not await made.renew(second)
