"""Where Oxide's configuration comes from, which source wins, and what is said when something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedplate.cloud.http.tokens import FixedToken
from bedplate.cloud.providers.oxide import config
from bedplate.core import errors

TOKEN = "oxide-token-planted"
ENV = {"OXIDE_HOST": "https://oxide.example.com", "OXIDE_TOKEN": TOKEN, "OXIDE_PROJECT": "example"}


async def token_of(found: config.Config) -> str:
    return (await found.token_source().current()).reveal()


async def test_the_originals_three_variables_suffice() -> None:
    found = config.load(ENV, None)
    assert (found.host, found.project, found.api_version) == (ENV["OXIDE_HOST"], "example", "2026060800.0.0")
    assert await token_of(found) == TOKEN and isinstance(found.token_source(), FixedToken)


def test_a_host_without_a_scheme_is_https() -> None:
    assert config.load({**ENV, "OXIDE_HOST": "oxide.example.com/"}, None).host == "https://oxide.example.com"


@pytest.mark.parametrize("missing", sorted(ENV))
def test_each_missing_value_is_named_with_its_variable(missing: str) -> None:
    with pytest.raises(errors.Invalid, match=missing):
        config.load({key: value for key, value in ENV.items() if key != missing}, None)
    with pytest.raises(errors.Invalid, match=missing):
        config.load({**ENV, missing: ""}, None)


def test_all_problems_are_told_at_once_with_the_ways_out() -> None:
    with pytest.raises(errors.Invalid) as caught:
        config.load({}, None)
    text = str(caught.value)
    assert all(name in text for name in ("OXIDE_HOST", "OXIDE_TOKEN", "OXIDE_PROJECT", "OXIDE_PROFILE", "tokenFile"))


async def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "host: https://file.example.com\ntoken: from-file\nproject: filed\ncaFile: /ca.pem\ninsecure: true\n"
        "zone: z\nregion: r\napiVersion: 2026072800.0.0\nloadBalancer: {deleteOrphans: true}\n"
    )
    found = config.load({}, file)
    assert (found.host, found.project, found.ca_file) == ("https://file.example.com", "filed", "/ca.pem")
    assert (found.is_insecure, found.zone, found.region) == (True, "z", "r")
    assert (found.api_version, found.deletes_orphans) == ("2026072800.0.0", True)
    assert await token_of(found) == "from-file"
    found = config.load(ENV, file)
    assert (found.host, found.project) == (ENV["OXIDE_HOST"], "example")
    assert await token_of(found) == TOKEN


async def test_a_token_in_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    rest = {key: value for key, value in ENV.items() if key != "OXIDE_TOKEN"}
    source = config.load({**rest, "OXIDE_TOKEN_FILE": str(file)}, None).token_source()
    assert (await source.current()).reveal() == "first"
    file.write_text("the second\n")
    assert (await source.current()).reveal() == "the second"


@pytest.mark.parametrize("is_in_environ", [True, False])
def test_a_token_file_that_does_not_exist_is_refused_with_key_and_path(tmp_path: Path, is_in_environ: bool) -> None:
    missing, file = tmp_path / "missing", tmp_path / "config.yaml"
    file.write_text("host: h\nproject: p\n" + ("" if is_in_environ else f"tokenFile: {missing}\n"))
    with pytest.raises(errors.Invalid) as caught:
        config.load({"OXIDE_TOKEN_FILE": str(missing)} if is_in_environ else {}, file)
    (problem,) = caught.value.problems
    assert "tokenFile" in problem and f"{missing} cannot be read: No such file" in problem


async def test_a_token_in_the_configuration_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("host: h\nproject: p\ntoken: first\n")
    source = config.load({}, file).token_source()
    assert (await source.current()).reveal() == "first"
    file.write_text("host: h\nproject: p\ntoken: the second\n")
    assert (await source.current()).reveal() == "the second"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / ".config" / "oxide"
    folder.mkdir(parents=True)
    (folder / "credentials.toml").write_text(
        f'[profile.lab]\nhost = "https://lab.example.com"\ntoken = "{TOKEN}"\nuser = "u"\n'
        '[profile.prod]\nhost = "https://prod.example.com"\ntoken = "prod-token"\n'
        '[profile.broken]\nhost = "https://x"\n'
    )
    return tmp_path


async def test_a_profile_gives_host_and_token(home: Path) -> None:
    found = config.load({"HOME": str(home), "OXIDE_PROFILE": "lab", "OXIDE_PROJECT": "p"}, None)
    assert found.host == "https://lab.example.com" and await token_of(found) == TOKEN


async def test_the_default_profile_is_the_last_resort(home: Path) -> None:
    with pytest.raises(errors.Invalid, match="OXIDE_PROFILE"):
        config.load({"HOME": str(home), "OXIDE_PROJECT": "p"}, None)
    (home / ".config" / "oxide" / "config.toml").write_text('default-profile = "prod"\n')
    found = config.load({"HOME": str(home), "OXIDE_PROJECT": "p"}, None)
    assert found.host == "https://prod.example.com" and await token_of(found) == "prod-token"
    found = config.load({"HOME": str(home), **ENV}, None)
    assert found.host == ENV["OXIDE_HOST"] and await token_of(found) == TOKEN


async def test_the_profile_of_the_environment_wins_over_every_other_host_and_token(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("host: https://file.example.com\ntoken: from-file\nproject: filed\n")
    env = {"HOME": str(home), "OXIDE_PROFILE": "prod"}
    for others in ({}, {"OXIDE_HOST": ENV["OXIDE_HOST"]}, {"OXIDE_TOKEN": TOKEN}, {"OXIDE_TOKEN_FILE": "/t"}, ENV):
        found = config.load({**env, **others}, file)
        assert found.host == "https://prod.example.com" and await token_of(found) == "prod-token"
    with pytest.raises(errors.Invalid, match="'nobody' is not in"):
        config.load({**ENV, "HOME": str(home), "OXIDE_PROFILE": "nobody"}, None)


async def test_the_token_of_a_profile_is_for_its_own_host_only(home: Path) -> None:
    (home / ".config" / "oxide" / "config.toml").write_text('default-profile = "lab"\n')
    env = {"HOME": str(home), "OXIDE_PROJECT": "p"}
    with pytest.raises(errors.Invalid, match="another host"):
        config.load({**env, "OXIDE_HOST": "https://elsewhere.example.com"}, None)
    assert await token_of(config.load({**env, "OXIDE_HOST": "lab.example.com"}, None)) == TOKEN


async def test_a_line_break_behind_the_token_is_no_part_of_it() -> None:
    assert await token_of(config.load({**ENV, "OXIDE_TOKEN": f"{TOKEN}\n"}, None)) == TOKEN


@pytest.mark.parametrize(("profile", "said"), [("nobody", "'nobody' is not in"), ("broken", "lacks host or token")])
def test_a_profile_that_is_not_there_is_told(home: Path, profile: str, said: str) -> None:
    with pytest.raises(errors.Invalid, match=said):
        config.load({"HOME": str(home), "OXIDE_PROFILE": profile, "OXIDE_PROJECT": "p"}, None)


@pytest.mark.parametrize(
    "text",
    [f"token: {TOKEN}\n  bad: [", f"- {TOKEN}", f"token: {TOKEN}\ninsecure: {TOKEN}", f"token: [{TOKEN}]"],
)
def test_a_bad_file_is_refused_without_showing_the_token(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(errors.Invalid) as caught:
        config.load({}, file)
    assert TOKEN not in str(caught.value) and TOKEN not in repr(caught.value.__cause__)


def test_the_token_is_not_shown(tmp_path: Path) -> None:
    assert TOKEN not in repr(config.load(ENV, None))


def test_a_label_that_does_not_exist_is_told(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("labels: [sled]\n")
    with pytest.raises(errors.Invalid, match="'sled' is none of project-id, cpu-platform"):
        config.load(ENV, file)
