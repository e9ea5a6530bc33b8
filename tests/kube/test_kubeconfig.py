"""Kubeconfig files: merging, contexts, every form of credentials, and problems reported together."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bedplate.core import errors
from bedplate.kube import config, kubeconfig


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def document(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **context: str
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://example.com:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", **context}}],
    }


def load(tmp_path: Path, content: dict[str, Any], context: str | None = None) -> config.ClientConfig:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(content))
    return config.load(path, context, environ={})


def problems(tmp_path: Path, content: dict[str, Any]) -> str:
    with pytest.raises(errors.Invalid) as caught:
        load(tmp_path, content)
    return str(caught.value)


def test_server_namespace_and_inline_data(tmp_path: Path) -> None:
    cluster = {"certificate-authority-data": b64("CA"), "tls-server-name": "api", "proxy-url": "http://p:1"}
    user = {"client-certificate-data": b64("CERT"), "client-key-data": b64("KEY")}
    found = load(tmp_path, document(cluster, user, namespace="apps"))
    assert (found.server, found.namespace, found.proxy_url) == ("https://example.com:6443", "apps", "http://p:1")
    assert (found.tls.ca_data, found.tls.cert_data, found.tls.key_data) == (b"CA", b"CERT", b"KEY")
    assert found.tls.server_name == "api"
    assert found.tls.verify


def test_secrets_do_not_show_in_a_printed_configuration(tmp_path: Path) -> None:
    user = {"token": "hunter2", "client-certificate-data": b64("CERT"), "client-key-data": b64("hunter3")}
    assert "hunter" not in repr(load(tmp_path, document(user=user)))


def test_relative_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).write_text("x")
    user = {"client-certificate": "tls.crt", "client-key": "./tls.key", "tokenFile": "token"}
    found = load(tmp_path, document({"certificate-authority": "ca.crt"}, user))
    assert Path(found.tls.ca_file) == tmp_path / "ca.crt"
    assert Path(found.tls.cert_file) == tmp_path / "tls.crt"
    assert Path(found.tls.key_file) == tmp_path / "tls.key"
    assert Path(found.auth.token_file) == tmp_path / "token"


def test_inline_data_wins_over_files(tmp_path: Path) -> None:
    found = load(tmp_path, document({"certificate-authority": "nowhere", "certificate-authority-data": b64("CA")}))
    assert (found.tls.ca_file, found.tls.ca_data) == ("", b"CA")


def test_a_context_can_be_chosen_and_an_unknown_one_names_the_known(tmp_path: Path) -> None:
    content = document()
    content["contexts"].append({"name": "other", "context": {"cluster": "k", "namespace": "there"}})
    assert load(tmp_path, content, "other").namespace == "there"
    with pytest.raises(errors.Invalid) as caught:
        load(tmp_path, content, "third")
    assert "third" in str(caught.value) and "c, other" in caught.value.hint
    del content["current-context"]
    with pytest.raises(errors.Invalid, match="no current-context"):
        load(tmp_path, content)


def test_of_several_files_the_first_to_name_a_thing_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "config", tmp_path / "b" / "config"
    for path in (first, second):
        path.parent.mkdir()
    one = document({"server": "https://one"}, {"token": "one"})
    del one["current-context"]
    two = document({"server": "https://two"}, {"token": "two"})
    two["users"].append({"name": "extra", "user": {"tokenFile": "token"}})
    two["contexts"].append({"name": "d", "context": {"cluster": "k", "user": "extra"}})
    two["current-context"] = "d"
    first.write_text(yaml.safe_dump(one))
    second.write_text(yaml.safe_dump(two))
    environ = {"KUBECONFIG": f"{first}:{tmp_path / 'missing'}::{second}"}
    found = config.load(environ=environ)
    assert found.server == "https://one"
    assert Path(found.auth.token_file) == second.parent / "token"
    assert config.load(context="c", environ=environ).auth.token == "one"


NAMES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=3)


@given(st.lists(NAMES, max_size=4))
def test_merging_keeps_the_first_of_each_name_and_loses_none(files: list[dict[str, int]]) -> None:
    documents = [
        (
            Path(f"/f{i}"),
            {"clusters": [{"name": name, "cluster": {"server": str(value)}} for name, value in file.items()]},
        )
        for i, file in enumerate(files)
    ]
    merged = kubeconfig.merge(documents)["clusters"]
    assert set(merged) == {name for file in files for name in file}
    for name, entry in merged.items():
        assert entry["server"] == str(next(file[name] for file in files if name in file))


@pytest.mark.parametrize("user", [{"token": "t"}, {"username": "u", "password": "p"}])
def test_a_token_or_password_wins_over_an_exec_plugin_as_with_kubectl(tmp_path: Path, user: dict[str, str]) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "not-installed", "interactiveMode": "Never"}
    found = load(tmp_path, document(user={**user, "exec": plugin}))
    assert (found.auth.token, found.auth.username) == (user.get("token", ""), user.get("username", ""))
    assert found.auth.exec is None


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    text = problems(
        tmp_path,
        document(
            {
                "server": "ftp://x",
                "proxy-url": "socks5://p:1080",
                "certificate-authority": "nowhere",
                "insecure-skip-tls-verify": True,
            },
            {
                "client-certificate-data": b64("x"),
                "token": "t",
                "username": "u",
                "as-groups": ["g"],
                "auth-provider": {"name": "gcp"},
            },
        ),
    )
    for fault in (
        "ftp://x",
        "socks5",
        "nowhere",
        "are mutually exclusive",
        "needs its key",
        "more than one",
        "need as",
        "'gcp'",
    ):
        assert fault in text


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"clusters": []}, "cluster 'k' is not defined"),
        ({"users": []}, "user 'u' is not defined"),
        ({"clusters": [{"name": "k"}, {"name": "k"}]}, "twice"),
        ({"clusters": ["k"]}, "not a mapping"),
        ({"kind": "Pod"}, "not Config"),
    ],
)
def test_files_that_make_no_sense_say_why(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    assert fault in problems(tmp_path, {**document(), **change})


def test_a_file_that_is_missing_or_no_yaml_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="does not exist"):
        config.load(tmp_path / "none", environ={})
    (tmp_path / "bad").write_text("{")
    with pytest.raises(errors.Invalid, match="bad"):
        config.load(tmp_path / "bad", environ={})


def test_impersonation_is_read(tmp_path: Path) -> None:
    user = {"token": "t", "as": "bob", "as-uid": "7", "as-groups": ["g"], "as-user-extra": {"k": ["v", "w"]}}
    found = load(tmp_path, document(user=user)).impersonate
    assert (found.user, found.uid, found.groups, dict(found.extra)) == ("bob", "7", ("g",), {"k": ("v", "w")})


def test_an_exec_plugin_is_read_with_the_configuration_of_its_cluster(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "args": ["a"],
        "env": [{"name": "N", "value": "V"}],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    cluster = {"extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}]}
    found = load(tmp_path, document(cluster, {"exec": plugin})).auth.exec
    assert found is not None
    assert (Path(found.command), found.args, dict(found.env)) == (tmp_path / "plugin", ("a",), {"N": "V"})
    assert (found.provide_cluster_info, found.cluster_config) == (True, {"audience": "x"})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1"),
        ({"interactiveMode": None}, "interactiveMode"),
        ({"command": ""}, "no command"),
        ({"command": "no-such-program-anywhere", "installHint": "get it there"}, "get it there"),
    ],
)
def test_an_exec_plugin_that_cannot_run_says_why(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "true", "interactiveMode": "Never"}
    assert fault in problems(tmp_path, document(user={"exec": {**plugin, **change}}))


def test_a_server_without_scheme_gets_one(tmp_path: Path) -> None:
    assert load(tmp_path, document({"server": "localhost:8080"})).server == "http://localhost:8080"
    with_ca = {"server": "example.com:6443", "certificate-authority-data": b64("CA")}
    assert load(tmp_path, document(with_ca)).server == "https://example.com:6443"


def test_a_path_behind_the_server_stays(tmp_path: Path) -> None:
    assert load(tmp_path, document({"server": "https://r/k8s/clusters/c-1/"})).server == "https://r/k8s/clusters/c-1"


def test_without_any_configuration_every_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid) as caught:
        config.load(environ={"HOME": str(tmp_path)})
    assert "KUBECONFIG" in str(caught.value) and ".kube/config" in str(caught.value)


def test_the_home_folder_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(yaml.safe_dump(document(user={"token": "home"})))
    assert config.load(environ={"HOME": str(tmp_path)}).auth.token == "home"


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_pod_finds_its_service_account(tmp_path: Path, host: str, server: str) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("CA")
    (tmp_path / "namespace").write_text("apps\n")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    assert config.is_in_pod(environ, tmp_path)
    found = config.load_in_pod(environ, tmp_path)
    assert (found.server, found.namespace) == (server, "apps")
    assert found.auth.token_file == str(tmp_path / "token")


def test_outside_a_pod_it_says_so(tmp_path: Path) -> None:
    assert not config.is_in_pod({}, tmp_path)
    with pytest.raises(errors.Invalid, match="not running in a pod"):
        config.load_in_pod({}, tmp_path)
