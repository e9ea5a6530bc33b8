"""Pushes one image (or any OCI artifact) to a registry, for machines without a container program.

In: the full name, the manifest and the blobs it names. Out: the blobs and the tag in the registry. The protocol is the
push half of the OCI distribution specification: ask whether a blob is there, upload it in one piece, put the manifest.
Credentials are those that `docker login` or `podman login` wrote; a registry that hands out tokens is asked for one.
Passwords and tokens are sent only over https, and only to the registry that was named; the password also to a host of
tokens that was named. A redirect or an upload's address elsewhere is followed without them.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import Any
from urllib.request import Request

from bedplate.core import errors

_TIMEOUT_S = 300.0
_ACCEPTED = (200, 201, 202)
# Registries whose tokens come from another host.
_TOKEN_HOSTS = dict.fromkeys(("docker.io", "index.docker.io", "registry-1.docker.io"), "auth.docker.io")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect, without the credentials where it leads to another place."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and _origin(following.full_url) != _origin(req.full_url):
            following.remove_header("Authorization")
        return following


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc.lower()


_opener = urllib.request.build_opener(_Redirects)


def push(
    name: str,
    manifest: bytes,
    kind: str,
    blobs: Iterable[tuple[str, Callable[[], bytes]]],
    *,
    is_plain: bool = False,
    token_host: str = "",
) -> str:
    """Push `registry/repository:tag`; returns the name without the tag. `token_host` may be sent the password, too."""
    host, _, rest = name.partition("/")
    repository, _, tag = rest.rpartition(":")
    login = "" if is_plain else credentials(host)
    token_hosts = {host, token_host or _TOKEN_HOSTS.get(host, host)}
    session = _Session(f"{'http' if is_plain else 'https'}://{host}", repository, login, token_hosts)
    for digest, read in blobs:
        if not session.has_blob(digest):
            session.upload(digest, read())
    session.request("PUT", f"/v2/{repository}/manifests/{tag}", manifest, {"Content-Type": kind})
    return f"{host}/{repository}"


def credentials(host: str, environ: Mapping[str, str] | None = None) -> str:
    """The `Authorization` value for a registry, from the files that a login writes; empty when there is none."""
    environ = os.environ if environ is None else environ
    home = Path(environ.get("HOME", "/"))
    files = (
        Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json",
        Path(environ.get("REGISTRY_AUTH_FILE") or home / ".config" / "containers" / "auth.json"),
        Path(environ.get("XDG_RUNTIME_DIR") or "/run") / "containers" / "auth.json",
    )
    for path in files:
        if path.is_file():
            secret = json.loads(path.read_text()).get("auths", {}).get(host, {}).get("auth")
            if secret:
                return f"Basic {secret}"
    return ""


class _Session:
    """Requests to one repository; asks for a token once when the registry wants one."""

    def __init__(self, url: str, repository: str, login: str, token_hosts: Set[str]) -> None:
        self._url = url
        self._token_hosts = token_hosts
        self._repository = repository
        self._login = login
        self._authorization = login

    def has_blob(self, digest: str) -> bool:
        status, _ = self._send("HEAD", f"/v2/{self._repository}/blobs/{digest}", None, {})
        return status == 200

    def upload(self, digest: str, content: bytes) -> None:
        headers = self.request("POST", f"/v2/{self._repository}/blobs/uploads/", b"", {})
        location = urllib.parse.urljoin(self._url, headers["location"])
        location += ("&" if "?" in location else "?") + urllib.parse.urlencode({"digest": digest})
        self.request("PUT", location, content, {"Content-Type": "application/octet-stream"})

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Mapping[str, str]:
        """Send; the answer's headers (names in lower case). Anything but success is an error that says what it was."""
        status, answer = self._send(method, path, body, headers)
        if status not in _ACCEPTED:
            raise errors.Unavailable(f"{method} {urllib.parse.urlsplit(path).path} at {self._url} answered {status}")
        return answer

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
        status, answer = self._once(method, path, body, headers)
        if status == 401 and answer.get("www-authenticate", "").lower().startswith("bearer "):
            self._authorization = f"Bearer {self._token(answer['www-authenticate'])}"
            status, answer = self._once(method, path, body, headers)
        return status, answer

    def _once(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
        url = urllib.parse.urljoin(self._url, path)
        origin = _origin(url)
        if origin[0] not in ("http", "https") or (self._url.startswith("https:") and origin[0] != "https"):
            raise errors.Invalid(f"the registry at {self._url} names {url}, which is not https")
        if self._authorization and origin == _origin(self._url) and origin[0] == "https":
            headers = headers | {"Authorization": self._authorization}
        request = Request(url, data=body, headers=headers, method=method)
        try:
            with _opener.open(request, timeout=_TIMEOUT_S) as answer:
                return answer.status, {name.lower(): value for name, value in answer.headers.items()}
        except urllib.error.HTTPError as err:
            return err.code, {name.lower(): value for name, value in err.headers.items()}
        except OSError as err:
            raise errors.Unavailable(f"the registry at {self._url} cannot be reached: {err}") from err

    def _token(self, challenge: str) -> str:
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        scheme, host = _origin(fields.get("realm", ""))
        query = {"service": fields.get("service", ""), "scope": f"repository:{self._repository}:pull,push"}
        request = Request(f"{fields.get('realm', '')}?{urllib.parse.urlencode(query)}")
        if scheme != "https":
            raise errors.Invalid(f"the registry at {self._url} wants a token, and credentials are sent only over https")
        if self._login:
            if host not in self._token_hosts:
                raise errors.Invalid(
                    f"the registry at {self._url} wants the password for {host}: --token-host {host} allows it"
                )
            request.add_header("Authorization", self._login)
        try:
            with _opener.open(request, timeout=_TIMEOUT_S) as answer:
                given = json.load(answer)
        except OSError as err:
            raise errors.Unavailable(f"no token from {host}: {err}") from err
        return str(given.get("token") or given["access_token"])
