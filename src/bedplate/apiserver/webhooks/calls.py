"""Calling a webhook: the AdmissionReview, the HTTPS request, the check of the answer.

In: a webhook's client configuration and a review. Out: the `response` of the answer, or `CallFailed` with the text the
real server would give. Who is called, and what a failure means, is decided by `admission`.
"""

from __future__ import annotations

import base64
import errno
import json
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import aiohttp

__all__ = ["CallFailed", "Caller", "ServiceResolver", "check_response", "endpoint_resolver"]

Object = Mapping[str, Any]
ServiceResolver = Callable[[str, str, int], tuple[str, int]]
"""namespace, name and port of a Service to an address that answers for it; raises LookupError with a reason."""

_MAX_ANSWER = 3 * 1024 * 1024


class CallFailed(Exception):
    """The webhook could not be asked, or its answer is not one."""


def _no_services(namespace: str, name: str, port: int) -> tuple[str, int]:
    raise LookupError(f'service "{name}" not found')


class Caller:
    """Holds the connections to webhooks. `resolve` finds the address behind a service reference."""

    def __init__(self, resolve: ServiceResolver = _no_services) -> None:
        self._resolve = resolve
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, client: Object, review: Object, timeout_s: int) -> dict[str, Any]:
        """POST the review; the decoded answer."""
        import aiohttp

        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession()
        url, shown, server_name = self._address(client, timeout_s)
        try:
            async with self._session.post(
                url,
                json=review,
                ssl=self._context(str(client.get("caBundle") or "")),
                server_hostname=server_name,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as answer:
                body = await answer.content.read(_MAX_ANSWER)
                if answer.status >= 300:
                    raise CallFailed(f"failed to call webhook: {_refusal(answer.status, body)}")
                return _decoded(body)
        except TimeoutError as error:
            raise CallFailed(f'failed to call webhook: Post "{shown}": context deadline exceeded') from error
        except aiohttp.ClientError as error:
            raise CallFailed(f'failed to call webhook: Post "{shown}": {_connection_text(error)}') from error

    def _address(self, client: Object, timeout_s: int) -> tuple[str, str, str | None]:
        """The URL to use, the one to show, and the name the certificate must bear."""
        query = f"?timeout={timeout_s}s"
        if client.get("url"):
            url = client["url"] + query
            return url, url, None
        service = client["service"]
        namespace, name, port = service["namespace"], service["name"], int(service.get("port") or 443)
        path = "/" + (service.get("path") or "").lstrip("/")
        shown = f"https://{name}.{namespace}.svc:{port}{path}{query}"
        try:
            host, target = self._resolve(namespace, name, port)
        except LookupError as error:
            raise CallFailed(f'failed to call webhook: Post "{shown}": {error.args[0]}') from error
        host = f"[{host}]" if ":" in host else host
        return f"https://{host}:{target}{path}{query}", shown, f"{name}.{namespace}.svc"

    def _context(self, bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is None:
            try:
                pem = base64.b64decode(bundle).decode() if bundle else None
                context = ssl.create_default_context(cadata=pem)
            except (ValueError, ssl.SSLError) as error:
                raise CallFailed(
                    "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
                ) from error
            self._contexts[bundle] = context
        return context


def _connection_text(error: Exception) -> str:
    """A failed connection in Go's words, as far as they are known."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        code = getattr(cause, "verify_code", 0)
        if code in (18, 19, 20, 21):
            return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        if code == 10:
            return "tls: failed to verify certificate: x509: certificate has expired or is not yet valid"
        return f"tls: failed to verify certificate: x509: {getattr(cause, 'verify_message', cause)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        where = f"{error.host}:{error.port}"
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return f"dial tcp: lookup {error.host}: no such host"
        if error.os_error.errno == errno.ECONNREFUSED or "refused" in str(error.os_error).lower():
            return f"dial tcp {where}: connect: connection refused"
        return f"dial tcp {where}: connect: {error.os_error.strerror}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__


def _refusal(code: int, body: bytes) -> str:
    """An answer other than success, in the words of the client the real server calls webhooks with."""
    text = body.decode(errors="replace").strip()
    known = {
        400: "the server rejected our request for an unknown reason",
        401: "the server has asked for the client to provide credentials",
        403: text or "forbidden",
        404: "the server could not find the requested resource",
        405: "the server does not allow this method on the requested resource",
        503: "the server is currently unable to handle the request",
    }
    if code in known:
        return known[code]
    if code >= 500:
        return f"an error on the server ({json.dumps(text or 'unknown')}) has prevented the request from succeeding"
    return f"the server responded with the status code {code} but did not return more information"


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise CallFailed(f"failed to call webhook: couldn't get version/kind; json parse error: {error}") from error
    if not isinstance(answer, dict):
        raise CallFailed("failed to call webhook: couldn't get version/kind; the answer must be an object")
    return answer


def check_response(answer: Object, uid: str, *, is_mutating: bool) -> dict[str, Any]:
    """The `response` of an AdmissionReview that answers the request `uid`."""
    response = answer.get("response")
    fault = ""
    kind = f"{answer.get('apiVersion', '')}, Kind={answer.get('kind', '')}"
    if not isinstance(response, dict):
        fault = "webhook response was absent"
    elif response.get("uid") != uid:
        fault = f"expected response.uid={json.dumps(uid)}, got {json.dumps(response.get('uid') or '')}"
    elif kind != "admission.k8s.io/v1, Kind=AdmissionReview":
        fault = f"expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {kind}"
    else:
        fault = _patch_fault(response, is_mutating)
    if fault or not isinstance(response, dict):
        raise CallFailed(f"received invalid webhook response: {fault}")
    return response


def _patch_fault(response: Object, is_mutating: bool) -> str:
    patch, kind = response.get("patch"), response.get("patchType")
    if not is_mutating:
        for key, value in (("patch", patch), ("patchType", kind)):
            if value:
                return f"validating webhook may not return response.{key}"
        return ""
    if patch and kind is None:
        return "webhook returned response.patch but not response.patchType"
    if kind is not None and not patch:
        return "webhook returned response.patchType but not response.patch"
    return (
        f"webhook returned invalid response.patchType of {json.dumps(kind)}" if kind not in (None, "JSONPatch") else ""
    )


def endpoint_resolver(read: Callable[[str, str, str, str], Any]) -> ServiceResolver:
    """Finds a service's address through its Service and Endpoints. `read(group, resource, namespace, name)`."""

    def resolve(namespace: str, name: str, port: int) -> tuple[str, int]:
        service = read("", "services", namespace, name)
        if service is None:
            raise LookupError(f'service "{name}" not found')
        entry = next((each for each in service["spec"].get("ports") or () if each["port"] == port), None)
        if entry is None:
            raise LookupError(f'no service port {port} found for service "{name}"')
        endpoints = read("", "endpoints", namespace, name)
        for subset in (endpoints or {}).get("subsets") or ():
            ports = {each.get("name", ""): each["port"] for each in subset.get("ports") or ()}
            target = ports.get(entry.get("name", ""))
            for address in subset.get("addresses") or ():
                if target is not None:
                    return address["ip"], int(target)
        raise LookupError(f'no endpoints available for service "{name}"')

    return resolve
