"""How many requests were answered, by verb, resource and code, for `/metrics`."""

from __future__ import annotations

import collections

from bedplate.apiserver import kinds
from bedplate.apiserver.pipeline import routes

__all__ = ["RequestCounts"]


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
