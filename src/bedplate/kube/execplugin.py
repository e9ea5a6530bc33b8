"""Credentials that a program prints (client.authentication.k8s.io/v1 and v1beta1).

In: an `ExecConfig`. Out: identities with a token, a client certificate, or both, until they expire. One run at a
time: requests that need the credential wait for the run under way.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from bedplate.core import clock
from bedplate.kube import errors
from bedplate.kube.config import ClientConfig, ExecConfig
from bedplate.kube.credentials import Identity

__all__ = ["ExecCredentials", "exec_info", "parse_credential"]

PLUGIN_TIMEOUT_S = 60.0
RENEW_BEFORE = timedelta(seconds=10)


class _CredentialStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Credential(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _CredentialStatus | None = None


def parse_credential(output: bytes, api_version: str) -> tuple[Identity, datetime | None]:
    """The identity in a plugin's output and when it expires; raises ValueError that says what is wrong."""
    try:
        credential = msgspec.json.decode(output, type=_Credential)
    except msgspec.DecodeError as err:
        raise ValueError(f"its output is not an ExecCredential: {err}") from err
    if credential.kind != "ExecCredential" or credential.api_version != api_version:
        raise ValueError(f"it printed {credential.api_version} {credential.kind}, not {api_version} ExecCredential")
    status = credential.status
    if status is None:
        raise ValueError("it printed no status")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ValueError("it printed a client certificate without its key, or a key without its certificate")
    if not status.token and not status.client_certificate_data:
        raise ValueError("it printed neither a token nor a client certificate")
    pair = (status.client_certificate_data.encode(), status.client_key_data.encode())
    identity = Identity(
        f"Bearer {status.token}" if status.token else "", pair if status.client_certificate_data else None
    )
    return identity, status.expiration_timestamp


def exec_info(config: ClientConfig, plugin: ExecConfig, *, is_interactive: bool) -> str:
    """The document that the plugin finds in KUBERNETES_EXEC_INFO."""
    spec: dict[str, object] = {"interactive": is_interactive}
    if plugin.provide_cluster_info:
        ca_data = config.tls.ca_data
        if not ca_data and config.tls.ca_file:
            with open(config.tls.ca_file, "rb") as file:
                ca_data = file.read()
        cluster: dict[str, object] = {"server": config.server}
        optional = {
            "tls-server-name": config.tls.server_name,
            "insecure-skip-tls-verify": not config.tls.verify,
            "certificate-authority-data": base64.b64encode(ca_data).decode(),
            "proxy-url": config.proxy_url,
            "disable-compression": config.compress is False,
            "config": plugin.cluster_config,
        }
        spec["cluster"] = {**cluster, **{key: value for key, value in optional.items() if value}}
    document = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    return msgspec.json.encode(document).decode()


def _stdin_is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


class ExecCredentials:
    """Runs the plugin when there is no credential, when it is about to expire, and when the server refused it."""

    def __init__(
        self,
        config: ClientConfig,
        plugin: ExecConfig,
        time: clock.Clock,
        has_terminal: Callable[[], bool] = _stdin_is_terminal,
    ) -> None:
        self._config = config
        self._plugin = plugin
        self._time = time
        self._has_terminal = has_terminal
        self._identity: Identity | None = None
        self._expires: datetime | None = None
        self._running = asyncio.Lock()

    async def current(self) -> Identity:
        if self._is_fresh():
            assert self._identity is not None
            return self._identity
        async with self._running:
            if not self._is_fresh():
                await self._run()
            assert self._identity is not None
            return self._identity

    async def renew(self, refused: Identity) -> bool:
        async with self._running:
            if self._identity == refused:
                await self._run()
            return self._identity != refused

    def _is_fresh(self) -> bool:
        if self._identity is None:
            return False
        return self._expires is None or self._time.now() + RENEW_BEFORE < self._expires

    async def _run(self) -> None:
        plugin = self._plugin
        is_interactive = plugin.interactive_mode != "Never" and self._has_terminal()
        if plugin.interactive_mode == "Always" and not is_interactive:
            raise errors.CredentialsFailed(
                f"exec plugin {plugin.command} needs a terminal (interactiveMode Always), but there is none",
                hint="run it once in a terminal, or use other credentials for a daemon",
            )
        info = await asyncio.to_thread(exec_info, self._config, plugin, is_interactive=is_interactive)
        environ = {**os.environ, **self._config.environ, **plugin.env, "KUBERNETES_EXEC_INFO": info}
        output = await self._output(environ, is_interactive)
        try:
            self._identity, self._expires = parse_credential(output, plugin.api_version)
        except ValueError as err:
            raise errors.CredentialsFailed(f"exec plugin {plugin.command}: {err}") from err

    async def _output(self, environ: dict[str, str], is_interactive: bool) -> bytes:
        plugin = self._plugin
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env=environ,
                stdin=None if is_interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if is_interactive else asyncio.subprocess.PIPE,
            )
        except OSError as err:
            hint = plugin.install_hint.strip()
            raise errors.CredentialsFailed(f"exec plugin {plugin.command} cannot be started: {err}", hint=hint) from err
        try:
            # A person at a terminal may take as long as the login needs.
            async with asyncio.timeout(None if is_interactive else PLUGIN_TIMEOUT_S):
                output, complaint = await process.communicate()
        except TimeoutError as err:
            raise errors.CredentialsFailed(
                f"exec plugin {plugin.command} printed nothing within {PLUGIN_TIMEOUT_S:.0f} s"
            ) from err
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            stderr = (complaint or b"").decode("utf-8", "replace").strip()[-400:]
            raise errors.CredentialsFailed(
                f"exec plugin {plugin.command} exited with {process.returncode}" + (f": {stderr}" if stderr else ""),
                hint=plugin.install_hint.strip(),
            )
        return output
