"""Which head a shell talks to, and as whom: flags over environment over the user's settings."""

from __future__ import annotations

import pathlib

import pytest

from bedplate.core import errors
from bedplate.ui.cmsh import usersettings
from bedplate.ui.cmsh.usersettings import Flags, Identity, choose


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "home" / ".config" / "bedplate").mkdir(parents=True)
    return tmp_path / "home"


def _config(home: pathlib.Path, text: str = "", **files: str) -> pathlib.Path:
    folder = home / ".config" / "bedplate"
    if text:
        (folder / "cmsh.yaml").write_text(text)
    return _files(folder, **files)


def _files(folder: pathlib.Path, **files: str) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_flags_win_over_environment_and_settings(home: pathlib.Path) -> None:
    _config(home, "url: https://settings:1\n")
    found = choose(Flags(urls=("https://flag:1",)), {"BEDPLATE_URL": "https://environment:1"}, home)
    assert found.urls == ("https://flag:1",)


def test_environment_wins_over_settings(home: pathlib.Path) -> None:
    _config(home, "url: https://settings:1\n")
    found = choose(Flags(), {"BEDPLATE_URL": "https://a:1, https://b:1"}, home)
    assert found.urls == ("https://a:1", "https://b:1")


def test_a_data_folder_said_on_the_command_line_wins_over_a_url_of_the_environment(home: pathlib.Path) -> None:
    found = choose(Flags(data=home), {"BEDPLATE_URL": "https://environment:1"}, home)
    assert (found.urls, found.data) == ((), home)


def test_settings_may_name_several_heads_and_files_beside_them(home: pathlib.Path) -> None:
    folder = _config(home, "url: [https://a:1, https://b:1]\ntoken-file: my.token\ncacert: /etc/ca.pem\n")
    found = choose(Flags(), {}, home)
    assert found.urls == ("https://a:1", "https://b:1")
    assert found.identity == Identity(token_file=folder / "my.token", cacert=pathlib.Path("/etc/ca.pem"))


def test_a_url_alone_reads_the_users_credentials(home: pathlib.Path) -> None:
    folder = _config(home, admin_token="t", ca_crt="c")
    found = choose(Flags(urls=("https://a:1",)), {}, home)
    assert found.identity == Identity(token_file=folder / "admin.token", cacert=folder / "ca.crt")


def test_a_url_with_a_data_folder_uses_that_folders_credentials(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    _config(home, admin_token="other", ca_crt="other")
    data = _files(tmp_path / "data", admin_token="t", admin_crt="c", admin_key="k", ca_crt="c")
    found = choose(Flags(urls=("https://a:1",), data=data), {}, home)
    assert found.identity == Identity(token_file=data / "admin.token", cacert=data / "ca.crt")


def test_a_certificate_is_used_where_there_is_no_token(tmp_path: pathlib.Path) -> None:
    data = _files(tmp_path / "data", admin_crt="c", admin_key="k")
    assert usersettings.beside(data) == Identity(cert=data / "admin.crt", key=data / "admin.key")


@pytest.mark.parametrize(
    "said",
    [Identity(token_file=pathlib.Path("t")), Identity(cert=pathlib.Path("c"), key=pathlib.Path("k"))],
)
def test_a_credential_on_the_command_line_overrides_the_folders(
    said: Identity, home: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    data = _files(tmp_path / "data", admin_token="t", ca_crt="c")
    found = choose(Flags(("https://a:1",), data, said), {"BEDPLATE_TOKEN_FILE": "/other"}, home).identity
    assert (found.token_file, found.cert, found.key) == (said.token_file, said.cert, said.key)
    assert found.cacert == data / "ca.crt"


def test_a_certificate_without_its_key_is_refused(home: pathlib.Path) -> None:
    with pytest.raises(errors.Invalid, match="--cert and --key must be given together"):
        choose(Flags(("https://a:1",), None, Identity(cert=pathlib.Path("c"))), {}, home)


@pytest.mark.parametrize("text", ["urll: x\n", "url: 3\n", "[", "url: a\nurl: b\n"])
def test_settings_that_cannot_be_understood_are_named(text: str, home: pathlib.Path) -> None:
    _config(home, text)
    with pytest.raises(errors.Invalid, match=r"cmsh\.yaml"):
        choose(Flags(), {}, home)


def test_without_any_word_the_user_is_told_what_to_say(
    home: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usersettings, "DEFAULT_DATA", tmp_path / "nothing")
    with pytest.raises(errors.Invalid) as found:
        choose(Flags(), {}, home)
    assert "--data" in found.value.hint
    assert "--url" in found.value.hint


def test_in_the_folder_of_up_the_user_is_told_where_its_head_is(
    home: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usersettings, "DEFAULT_DATA", tmp_path / "nothing")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".bedplate/head").mkdir(parents=True)
    with pytest.raises(errors.Invalid) as found:
        choose(Flags(), {}, home)
    assert found.value.hint.startswith("--data .bedplate/head is that of `bedplate up` in this folder")


def test_the_usual_folder_is_used_when_it_is_there(
    home: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usersettings, "DEFAULT_DATA", tmp_path)
    assert choose(Flags(), {}, home).data == tmp_path


def test_settings_are_looked_for_where_the_desktop_says(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "xdg" / "bedplate").mkdir(parents=True)
    (tmp_path / "xdg" / "bedplate" / "cmsh.yaml").write_text("data: head\n")
    found = choose(Flags(), {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}, home)
    assert found.data == tmp_path / "xdg" / "bedplate" / "head"
