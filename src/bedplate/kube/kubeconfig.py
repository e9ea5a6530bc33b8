"""Kubeconfig files: read, merged as kubectl merges them, one context of them turned into a `ClientConfig`.

In: paths and a context name. Out: `ClientConfig`, or `Invalid` with every problem found. Reads the files and nothing
else: it runs no plugin and opens no connection. Of several files the first to name a cluster, user, context or
current-context wins; relative paths are relative to the file they stand in.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from bedplate.core import errors, yamls
from bedplate.kube.config import AuthConfig, ClientConfig, ExecConfig, Impersonation, TLSConfig

__all__ = ["merge", "read", "resolve"]

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_INTERACTIVE = ("Never", "IfAvailable", "Always")
_CLUSTER_PATHS = ("certificate-authority",)
_USER_PATHS = ("client-certificate", "client-key", "tokenFile")
Section = dict[str, dict[str, Any]]


def read(
    paths: Sequence[Path], context: str | None = None, *, environ: Mapping[str, str], missing_ok: bool = False
) -> ClientConfig:
    """The configuration of a context (default: the current one) of these files. `missing_ok`: skip absent files."""
    documents = []
    for path in paths:
        try:
            documents.append((path, parse(path.read_text())))
        except FileNotFoundError as err:
            if not missing_ok:
                raise errors.Invalid(f"kubeconfig {path} does not exist") from err
        except (OSError, UnicodeDecodeError, ValueError) as err:
            raise errors.Invalid(f"kubeconfig {path} cannot be read: {err}") from err
    if not documents:
        raise errors.Invalid(
            "none of the kubeconfig files exist",
            problems=[str(path) for path in paths],
            hint="correct KUBECONFIG or pass --kubeconfig",
        )
    return resolve(merge(documents), context, environ=environ)


def parse(text: str) -> dict[str, Any]:
    """The mapping in a kubeconfig; ValueError when it is not one."""
    try:
        document = yamls.load(text)
    except yaml.YAMLError as err:
        raise ValueError(f"not YAML: {err}") from err
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError("not a mapping")
    if document.get("kind", "Config") != "Config":
        raise ValueError(f"kind is {document['kind']!r}, not Config")
    return document


def merge(documents: Sequence[tuple[Path, Mapping[str, Any]]]) -> dict[str, Any]:
    """One configuration out of several: the first to set a value wins; paths become absolute."""
    merged: dict[str, Any] = {"current-context": "", "clusters": {}, "users": {}, "contexts": {}}
    for path, document in documents:
        merged["current-context"] = merged["current-context"] or document.get("current-context") or ""
        for plural, singular in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for name, entry in _entries(path, document, plural, singular).items():
                merged[plural].setdefault(name, entry)
    return merged


def _entries(path: Path, document: Mapping[str, Any], plural: str, singular: str) -> Section:
    result: Section = {}
    for item in document.get(plural) or ():
        if not isinstance(item, dict) or not isinstance(item.get(singular) or {}, dict):
            raise errors.Invalid(f"kubeconfig {path}: an entry of {plural} is not a mapping with name and {singular}")
        name = str(item.get("name", ""))
        if name in result:
            raise errors.Invalid(f"kubeconfig {path}: {plural} names {name!r} twice")
        entry = dict(item.get(singular) or {})
        for key in {"cluster": _CLUSTER_PATHS, "user": _USER_PATHS}.get(singular, ()):
            if entry.get(key):
                entry[key] = str(path.parent.absolute() / entry[key])
        plugin = entry.get("exec")
        if isinstance(plugin, dict) and "/" in str(plugin.get("command", "")):
            entry["exec"] = {**plugin, "command": str(path.parent.absolute() / plugin["command"])}
        result[name] = entry
    return result


def resolve(merged: Mapping[str, Any], context: str | None, *, environ: Mapping[str, str]) -> ClientConfig:
    """One context of a merged configuration; raises `Invalid` with all problems of its cluster and user."""
    name = context or merged["current-context"]
    known = ", ".join(sorted(merged["contexts"]))
    if not known:
        raise errors.Invalid("the kubeconfig has no contexts")
    if not name:
        raise errors.Invalid("the kubeconfig sets no current-context", hint=f"choose a context of: {known}")
    if name not in merged["contexts"]:
        raise errors.Invalid(f"the kubeconfig has no context {name!r}", hint=f"choose a context of: {known}")
    chosen = merged["contexts"][name]
    problems: list[str] = []
    cluster = _named(merged["clusters"], chosen.get("cluster"), "cluster", problems)
    user = _named(merged["users"], chosen.get("user"), "user", problems) if chosen.get("user") else {}
    tls = _tls(cluster, user, problems)
    config = ClientConfig(
        server=_server(cluster, tls, problems),
        tls=tls,
        auth=_auth(cluster, user, problems),
        impersonate=_impersonation(user, problems),
        proxy_url=_proxy(cluster, problems),
        namespace=chosen.get("namespace") or "default",
        compress=False if cluster.get("disable-compression") else None,
        environ=environ,
    )
    if problems:
        raise errors.Invalid(f"context {name!r} of the kubeconfig cannot be used", problems=problems)
    return config


def _named(section: Section, name: Any, what: str, problems: list[str]) -> dict[str, Any]:
    if name in section:
        return section[name]
    problems.append(f"{what} {name!r} is not defined" if name else f"no {what} is named")
    return {}


def _server(cluster: Mapping[str, Any], tls: TLSConfig, problems: list[str]) -> str:
    server = str(cluster.get("server") or "")
    if not server:
        if cluster:
            problems.append("the cluster has no server")
        return ""
    if "://" not in server:
        has_tls = bool(tls.ca_file or tls.ca_data or tls.cert_file or tls.cert_data)
        server = f"{'https' if has_tls else 'http'}://{server}"
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        problems.append(f"server {server!r} is not an http or https address")
    return server.rstrip("/")


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], problems: list[str]) -> TLSConfig:
    ca_data = _data(cluster, "certificate-authority-data", problems)
    cert_data = _data(user, "client-certificate-data", problems)
    key_data = _data(user, "client-key-data", problems)
    ca_file = "" if ca_data else str(cluster.get("certificate-authority") or "")
    cert_file = "" if cert_data else str(user.get("client-certificate") or "")
    key_file = "" if key_data else str(user.get("client-key") or "")
    insecure = bool(cluster.get("insecure-skip-tls-verify"))
    if insecure and (ca_data or ca_file):
        problems.append("insecure-skip-tls-verify and a certificate authority are mutually exclusive")
    if bool(cert_data or cert_file) != bool(key_data or key_file):
        problems.append("a client certificate needs its key, and a key its certificate")
    files = [path for path in (ca_file, cert_file, key_file) if path]
    problems += [f"file {path} does not exist" for path in files if not Path(path).is_file()]
    return TLSConfig(
        ca_file=ca_file,
        ca_data=ca_data,
        cert_file=cert_file,
        cert_data=cert_data,
        key_file=key_file,
        key_data=key_data,
        server_name=str(cluster.get("tls-server-name") or ""),
        verify=not insecure,
    )


def _data(entry: Mapping[str, Any], key: str, problems: list[str]) -> bytes:
    try:
        return base64.b64decode(str(entry.get(key) or ""), validate=False)
    except (binascii.Error, ValueError):
        problems.append(f"{key} is not base64")
        return b""


def _auth(cluster: Mapping[str, Any], user: Mapping[str, Any], problems: list[str]) -> AuthConfig:
    if provider := user.get("auth-provider"):
        name = provider.get("name", "") if isinstance(provider, dict) else ""
        problems.append(f"auth-provider {name!r} is no longer part of Kubernetes: use the exec plugin of that provider")
    token, token_file = str(user.get("token") or ""), str(user.get("tokenFile") or "")
    username, password = str(user.get("username") or ""), str(user.get("password") or "")
    has_token, has_password = bool(token or token_file), bool(username or password)
    if has_token and has_password:
        problems.append("more than one of token and username is given for the user")
    # As with kubectl, a plugin is not run when there is something to present without it.
    needs_plugin = bool(user.get("exec")) and not has_token and not has_password
    plugin = _exec(cluster, user["exec"], problems) if needs_plugin else None
    return AuthConfig(token=token, token_file=token_file, username=username, password=password, exec=plugin)


def _exec(cluster: Mapping[str, Any], entry: Any, problems: list[str]) -> ExecConfig | None:
    if not isinstance(entry, dict) or not entry.get("command"):
        problems.append("exec has no command")
        return None
    version = str(entry.get("apiVersion") or "")
    if version not in _EXEC_VERSIONS:
        problems.append(f"exec has apiVersion {version!r}, not one of {', '.join(_EXEC_VERSIONS)}")
    mode = entry.get("interactiveMode") or ("" if version == _EXEC_VERSIONS[0] else "IfAvailable")
    if mode not in _INTERACTIVE:
        problems.append(f"exec has interactiveMode {mode!r}, not one of {', '.join(_INTERACTIVE)}")
    command = str(entry["command"])
    import shutil

    if "/" not in command and shutil.which(command) is None:
        hint = str(entry.get("installHint") or "").strip()
        problems.append(f"exec plugin {command!r} is not installed" + (f": {hint}" if hint else ""))
    extensions = {item.get("name"): item.get("extension") for item in cluster.get("extensions") or ()}
    return ExecConfig(
        command=command,
        args=tuple(str(arg) for arg in entry.get("args") or ()),
        env={str(item["name"]): str(item.get("value", "")) for item in entry.get("env") or ()},
        api_version=version,
        install_hint=str(entry.get("installHint") or ""),
        interactive_mode=mode,
        provide_cluster_info=bool(entry.get("provideClusterInfo")),
        cluster_config=extensions.get(_EXEC_EXTENSION),
    )


def _impersonation(user: Mapping[str, Any], problems: list[str]) -> Impersonation:
    extra = {key: tuple(values or ()) for key, values in (user.get("as-user-extra") or {}).items()}
    result = Impersonation(
        user=str(user.get("as") or ""),
        uid=str(user.get("as-uid") or ""),
        groups=tuple(user.get("as-groups") or ()),
        extra=extra,
    )
    if not result.user and (result.uid or result.groups or result.extra):
        problems.append("as-uid, as-groups and as-user-extra need as")
    return result


def _proxy(cluster: Mapping[str, Any], problems: list[str]) -> str:
    url = str(cluster.get("proxy-url") or "")
    scheme = urlsplit(url).scheme
    if url and scheme not in ("http", "https"):
        problems.append(f"proxy-url {url!r} is not supported: use an http or https proxy")
    return url
