"""Where tokens come from: files that change, identity providers; and that secrets stay secret."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cloud.http.leaping import LeapingClock
from tests.kube.scripted import Answer, Asked, serving

from bedplate.cloud.http.oidc import ClientCredentials, OidcOptions
from bedplate.cloud.http.secrets import REDACTED, Scrubber, Secret
from bedplate.cloud.http.tokens import FixedToken, TokenFile, TokenUnavailable, yaml_key
from bedplate.cloud.http.transport import Reach

SECRET = "s3cret-with/+=&%-signs"


async def test_a_file_is_read_again_when_it_has_changed_and_not_otherwise(tmp_path: Path) -> None:
    file, results = tmp_path / "token", []
    file.write_text(" one\n")
    source = TokenFile(file, reloads=results.append)
    assert (await source.current()).reveal() == "one"
    assert (await source.current()).reveal() == "one" and results == []
    file.write_text("two")
    os.utime(file, ns=(1, 1))
    assert (await source.current()).reveal() == "two" and results == ["changed"]


async def test_a_secret_mount_that_is_swapped_is_noticed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(f"token-{name}")
        os.utime(tmp_path / name / "token", ns=(1, 1))
    link = tmp_path / "data"
    link.symlink_to("a")
    source = TokenFile(link / "token")
    assert (await source.current()).reveal() == "token-a"
    swap = tmp_path / "swap"
    swap.symlink_to("b")
    swap.rename(link)
    assert (await source.current()).reveal() == "token-b"


async def test_a_file_that_vanishes_or_empties_leaves_the_last_token(tmp_path: Path) -> None:
    file, results = tmp_path / "token", []
    file.write_text("one")
    source = TokenFile(file, reloads=results.append)
    await source.current()
    file.write_text("")
    os.utime(file, ns=(1, 1))
    assert (await source.current()).reveal() == "one"
    file.unlink()
    assert (await source.current()).reveal() == "one"
    assert not await source.renew(Secret("one")) and set(results) == {"error"}
    file.write_text("two")
    assert (await source.current()).reveal() == "two"


@pytest.mark.parametrize("sample", ["your-api-token", f"oxide-token-{40 * 'X'}"])
async def test_a_placeholder_of_the_samples_is_refused_by_its_name_and_never_used(tmp_path: Path, sample: str) -> None:
    with pytest.raises(TokenUnavailable, match=f"placeholder '{sample}'"):
        await FixedToken(Secret(sample)).current()
    file = tmp_path / "cloud-config"
    file.write_text(f'token: "{sample}"\n')
    source = TokenFile(file, yaml_key("token"))
    with pytest.raises(TokenUnavailable, match=f"cloud-config: what is there is the placeholder '{sample}'"):
        await source.current()
    file.write_text("token: good\n")
    assert (await source.current()).reveal() == "good"
    # A file that somebody put the sample over does not take the good token away.
    file.write_text(f"token: {sample}\n")
    os.utime(file, ns=(1, 1))
    assert (await source.current()).reveal() == "good"


async def test_without_a_file_there_is_no_token_until_it_comes(tmp_path: Path) -> None:
    source = TokenFile(tmp_path / "token")
    with pytest.raises(TokenUnavailable):
        await source.current()
    (tmp_path / "token").write_text("late")
    assert (await source.current()).reveal() == "late"


async def test_after_a_refusal_the_file_is_read_even_if_it_looks_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    os.utime(file, ns=(1, 1))
    source = TokenFile(file)
    old = await source.current()
    assert not await source.renew(old)
    with file.open("r+") as open_file:
        open_file.write("two")
    os.utime(file, ns=(1, 1))
    assert await source.renew(old) and (await source.current()).reveal() == "two"
    assert await source.renew(old), "another call has renewed it already"


async def test_a_key_of_a_yaml_file_is_the_token(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("endpoint: x\ntoken: 'one'\n")
    source = TokenFile(file, yaml_key("token"))
    assert (await source.current()).reveal() == "one"
    for broken in ("token: [", "other: 1\n", "- a\n", "token:\n"):
        file.write_text(broken)
        assert (await source.current()).reveal() == "one", "a half-written file does not lose the token"
    file.write_text("token: 12345678\n")
    assert (await source.current()).reveal() == "12345678"


async def test_a_fixed_token_cannot_be_renewed() -> None:
    source = FixedToken(Secret("x"))
    assert not await source.renew(Secret("x")) and (await source.current()).reveal() == "x"


class IdentityProvider:
    """Gives numbered tokens; can refuse the header, or everything."""

    def __init__(self, *, wants_body: bool = False) -> None:
        self.wants_body, self.is_up, self.asked = wants_body, True, 0
        self.life: object = 100

    def __call__(self, asked: Asked) -> Answer:
        self.asked += 1
        form = parse_qs(asked.body.decode())
        assert form["grant_type"] == ["client_credentials"] and form["scope"] == ["a b"]
        if not self.is_up:
            return Answer(503, {"error": "down", "error_description": f"{SECRET} is down"})
        if self.wants_body:
            if form.get("client_secret") != [SECRET]:
                return Answer(401, {"error": "invalid_client"})
        else:
            assert "client_secret" not in form and asked.headers["authorization"].startswith("Basic ")
        return Answer(200, {"access_token": f"token-{self.asked}", "expires_in": self.life})


def oidc(url: str, time: LeapingClock, results: list[str] | None = None) -> ClientCredentials:
    options = OidcOptions(f"{url}/token", "me", Secret(SECRET), scopes=("a", "b"))
    return ClientCredentials(
        options, Reach(), time=time, rng=random.Random(1), reloads=results.append if results is not None else None
    )


@pytest.mark.parametrize("wants_body", [False, True])
async def test_client_credentials_are_exchanged_and_renewed_in_time(wants_body: bool) -> None:
    provider, time, results = IdentityProvider(wants_body=wants_body), LeapingClock(), []
    async with serving(provider) as server:
        source = oidc(server.url, time, results)
        first = await source.current()
        assert await source.current() == first and results == []
        time.leap(81)
        second = await source.current()
        assert second != first and results == ["changed"]
        assert await source.renew(second) and await source.current() != second
        asked = provider.asked
        assert await source.renew(second) and provider.asked == asked, "another call has renewed it already"
        await source.close()


async def test_a_token_is_used_until_it_expires_when_no_other_can_be_had() -> None:
    provider, time, results = IdentityProvider(), LeapingClock(), []
    async with serving(provider) as server:
        source = oidc(server.url, time, results)
        first = await source.current()
        provider.is_up = False
        time.leap(90)
        for _ in range(5):
            assert await source.current() == first
        assert provider.asked == 2 and results == ["error"], "a failed fetch is not repeated at once"
        time.leap(20)
        with pytest.raises(TokenUnavailable) as caught:
            await source.current()
        assert SECRET not in str(caught.value) and "503" in str(caught.value)
        provider.is_up = True
        time.leap(60)
        assert await source.current() != first
        await source.close()


@pytest.mark.parametrize("life", [None, 0, -5, "100", True])
async def test_a_life_that_makes_no_sense_is_five_minutes(life: object) -> None:
    provider, time = IdentityProvider(), LeapingClock()
    provider.life = life
    async with serving(provider) as server:
        source = oidc(server.url, time)
        await source.current()
        time.leap(200)
        await source.current()
        assert provider.asked == 1
        time.leap(100)
        await source.current()
        assert provider.asked == 2
        await source.close()


@pytest.mark.parametrize("answer", [Answer(200, {}), Answer(200, b"<html>"), Answer(200, [1]), Answer(drop=True)])
async def test_an_answer_without_a_token_is_none(answer: Answer) -> None:
    async with serving([answer]) as server:
        source = oidc(server.url, LeapingClock())
        with pytest.raises(TokenUnavailable):
            await source.current()
        await source.close()


async def test_the_clients_secret_may_be_a_file_and_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    time = LeapingClock()
    async with serving(IdentityProvider(wants_body=True)) as server:
        options = OidcOptions(f"{server.url}/token", "me", Secret(""), file, ("a", "b"))
        source = ClientCredentials(options, Reach(), time=time, rng=random.Random(1))
        with pytest.raises(TokenUnavailable, match="secret"):
            await source.current()
        file.write_text(f"{SECRET}\n")
        time.leap(60)
        assert (await source.current()).reveal().startswith("token-")
        await source.close()


def test_a_secret_does_not_show() -> None:
    secret = Secret(SECRET)
    assert SECRET not in f"{secret} {secret!r} {secret!s} {[secret]} {secret:>40}" and secret.reveal() == SECRET
    for spill in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError):
            spill(secret)  # type: ignore[operator]
    assert secret == Secret(SECRET) and secret != Secret("x") and not Secret("")


_tokens = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=40)


@given(_tokens, st.text(max_size=30), st.text(max_size=30))
def test_no_text_keeps_a_secret_it_was_taught(token: str, before: str, after: str) -> None:
    scrubber = Scrubber()
    scrubber.learn(Secret(token))
    for text in (before + token + after, f"{before}{token}{after}{token}"):
        assert token not in scrubber.clean(text).replace(REDACTED, "\0")
    cleaned = scrubber.clean_data({f"k{token}": [token, {"x": f"{before}{token}"}], "n": 1})
    assert (
        token not in json.dumps(cleaned, ensure_ascii=False).replace(REDACTED, "\0") or token in '{"k": [{"x": "n": 1}'
    )


def test_headers_and_users_in_urls_are_removed_unseen() -> None:
    cleaned = Scrubber().clean("Authorization: Bearer abc.def-ghi; basic dXNlcjpwYXNz via http://me:pw@proxy:3128/")
    assert not any(word in cleaned for word in ("abc.def", "dXNl", "me:pw")) and "proxy:3128" in cleaned
