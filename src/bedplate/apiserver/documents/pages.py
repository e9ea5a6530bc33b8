"""Answers outside of the resource space: discovery, OpenAPI, version, health, metrics.

In: requests whose path is not that of a resource. Out: answers, or None where there is nothing at the path. OpenAPI is
imported and made when first asked for.
"""

from __future__ import annotations

import collections
import hashlib
import pathlib
import resource as process
from typing import TYPE_CHECKING, Any

from bedplate.apiserver import facts, kinds
from bedplate.apiserver.documents import discovery
from bedplate.apiserver.pipeline import routes
from bedplate.apiserver.state import bodies, registry, watchers
from bedplate.serving import http

if TYPE_CHECKING:
    from bedplate.apiserver.documents import openapi

__all__ = ["Pages", "RequestCounts"]

_TEXT = "text/plain; charset=utf-8"
_HEALTH = frozenset({"healthz", "livez", "readyz"})
_CHECKS = ("ping", "log", "store")


class Pages:
    """The pages of one server."""

    def __init__(
        self,
        live: kinds.Kinds,
        table: facts.Facts,
        state: registry.Registry,
        hub: watchers.Watchers,
        counts: RequestCounts,
        *,
        address: str,
        texts: pathlib.Path | None = None,
    ) -> None:
        self._texts = texts
        self._kinds = live
        self._facts = table
        self._registry = state
        self._hub = hub
        self._discovery = discovery.Discovery(live, discovery.version_document(table.kubernetes), address)
        self._openapi: openapi.OpenAPI | None = None
        self._tags: dict[bytes, str] = {}
        self._counts = counts
        self.extra: dict[str, tuple[bytes, str]] = {}
        """Fixed pages of other parts, by path."""

    def __call__(self, request: http.Request) -> http.Response | None:
        path = request.path.rstrip("/") or "/"
        head = path.split("/")[1]
        if head in ("api", "apis"):
            document = self._discovery.answer(path, request.header(b"accept"))
            return None if document is None else self._tagged(request, *document)
        if head in _HEALTH:
            return _health(path.split("/")[1:], "verbose" in request.query)
        if head == "openapi":
            return self._open_api(path, request)
        if path in self.extra:
            return http.Response(200, *self.extra[path])
        match path:
            case "/version":
                return http.Response(200, self._discovery.version())
            case "/metrics":
                return http.Response(200, self._metrics().encode(), "text/plain; version=0.0.4; charset=utf-8")
            case "/":
                return http.Response(200, bodies.encode({"paths": self._paths()}))
        return None

    def _tagged(self, request: http.Request, body: bytes, content_type: str) -> http.Response:
        """Aggregated documents are large and change seldom: clients ask whether they still have the right one."""
        if content_type == http.JSON:
            return http.Response(200, body, content_type)
        tag = self._tags.get(body)
        if tag is None:
            self._tags = {body: hashlib.sha256(body).hexdigest().upper()} | (self._tags if len(self._tags) < 8 else {})
            tag = self._tags[body]
        return _unless_known(request, "ETag", tag, body, content_type)

    def _open_api(self, path: str, request: http.Request) -> http.Response | None:
        from bedplate.apiserver.documents import openapi, openapi_protobuf

        if self._openapi is None:
            self._openapi = openapi.OpenAPI(self._kinds, self._facts, openapi.Texts(self._texts))
        if path == "/openapi/v3":
            return http.Response(200, self._openapi.index())
        content_type = http.JSON
        if path != "/openapi/v2":
            document = self._openapi.document(path)
        elif openapi_protobuf.is_wanted(request.header(b"accept")):
            content_type, document = openapi_protobuf.CONTENT_TYPE, self._openapi.version_2_protobuf()
        else:
            document = self._openapi.version_2()
        if document is None:
            return None
        body, tag = document
        return _unless_known(request, "Etag", tag, body, content_type)

    def _paths(self) -> list[str]:
        paths = {"/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz"}
        for each in self._kinds:
            if each.group:
                paths |= {f"/apis/{each.group}", f"/apis/{each.group}/{each.version}"}
        return sorted(paths | {"/version", *self.extra})

    def _metrics(self) -> str:
        lines = [self._counts.text()]
        lines.append(_sample("apiserver_registered_watchers", self._hub.count, "Watches open now."))
        revision = self._registry.revision
        lines.append(_sample("apiserver_current_resource_version", revision, "Newest resourceVersion handed out."))
        lines.append("# HELP apiserver_resource_objects Objects stored, by resource.\n")
        lines.append("# TYPE apiserver_resource_objects gauge\n")
        for (group, name), count in sorted(self._registry.sizes().items()):
            lines.append(f'apiserver_resource_objects{{group="{group}",resource="{name}"}} {count}\n')
        usage = process.getrusage(process.RUSAGE_SELF)
        seconds = usage.ru_utime + usage.ru_stime
        lines.append(_sample("process_cpu_seconds_total", seconds, "User and system time spent.", "counter"))
        lines.append(_sample("process_resident_memory_bytes", _resident_bytes(), "Resident memory size."))
        return "".join(lines)


def _unless_known(request: http.Request, name: str, tag: str, body: bytes, content_type: str) -> http.Response:
    """The document, or 304 where the client has the one of this tag."""
    headers = ((name, f'"{tag}"'), ("Vary", "Accept"))
    if request.header(b"if-none-match") == f'"{tag}"':
        return http.Response(304, b"", content_type, headers)
    return http.Response(200, body, content_type, headers)


def _sample(name: str, value: float, text: str, kind: str = "gauge") -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value}\n"


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * process.getpagesize()


def _health(parts: list[str], verbose: Any) -> http.Response | None:
    """The server listens only once everything is loaded, so whoever gets an answer gets a good one."""
    if len(parts) > 1:
        return http.Response(200, b"ok", _TEXT) if parts[1] in _CHECKS else None
    if not verbose:
        return http.Response(200, b"ok", _TEXT)
    lines = [f"[+]{check} ok" for check in _CHECKS]
    return http.Response(200, "\n".join([*lines, f"{parts[0]} check passed\n"]).encode(), _TEXT)


class RequestCounts:
    """The counter `apiserver_request_total`."""

    def __init__(self, live: kinds.Kinds) -> None:
        self._kinds = live
        self._counts: collections.Counter[tuple[str, str, str, str, str, int]] = collections.Counter()

    def add(self, info: routes.RequestInfo, code: int) -> None:
        key = (info.verb, info.group, info.version, info.resource, info.subresource, code)
        if key not in self._counts:
            resource = self._kinds.get(info.group, info.version, info.resource)
            if resource is None or (info.subresource and info.subresource not in resource.subresources):
                # Paths that lead nowhere are not worth a number each: anybody can think up any number of them.
                key = ("other", "", "", "", "", code)
        self._counts[key] += 1

    def text(self) -> str:
        """The counter in the text form of Prometheus."""
        lines = ["# HELP apiserver_request_total Requests answered.", "# TYPE apiserver_request_total counter"]
        for (verb, group, version, resource, subresource, code), count in sorted(self._counts.items()):
            names = {
                "code": code, "group": group, "resource": resource, "subresource": subresource,
                "verb": verb.upper(), "version": version,
            }  # fmt: skip
            labels = ",".join(f'{key}="{value}"' for key, value in names.items())
            lines.append(f"apiserver_request_total{{{labels}}} {count}")
        return "\n".join(lines) + "\n"
