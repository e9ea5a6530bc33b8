"""Versions of Kubernetes, versions of operators, and which operators a cluster has.

In: the tables of this package; for `operators` a kubeconfig. Out: lines on standard output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from bedplate.core.clock import SystemClock
from bedplate.setup.answers.declaration import minors
from bedplate.setup.engine.events import Output
from bedplate.setup.operators import CERTIFIED_MINORS, CHECKED, OPERATORS, Operator
from bedplate.setup.tool import heads, output

__all__ = ["available", "operators", "operators_versions", "versions"]

_SUFFIX = " (NVIDIA AI Enterprise certified)"


def versions(values: Mapping[str, Any]) -> int:
    """The minors that can be deployed, newest first, one in each line."""
    if values["json"]:
        _print_json({"version": minor, "certified": minor in CERTIFIED_MINORS} for minor in minors())
    else:
        _print([minor + (_SUFFIX if minor in CERTIFIED_MINORS else "") for minor in minors()])
    return 0


def operators_versions(values: Mapping[str, Any]) -> int:
    """Each operator with its versions; the first one is the default."""
    if values["json"]:
        _print_json(row for operator in OPERATORS for row in _rows(operator))
        return 0
    lines = []
    for operator in OPERATORS:
        lines.append(f"{operator.title}:")
        lines += [f"  {_version(operator, version)}" for version in operator.versions]
        lines += [f"  {version} (Kubernetes {minor})" for minor, version in operator.by_minor]
    _print(lines)
    return 0


def _rows(operator: Operator) -> Iterable[dict[str, Any]]:
    about = {"operator": operator.name, "title": operator.title}
    for version in operator.versions:
        is_default, is_certified = version == operator.versions[0], version in operator.certified
        yield {**about, "version": version, "default": is_default, "certified": is_certified}
    for minor, version in operator.by_minor:
        yield {**about, "version": version, "kubernetes": minor}


def _version(operator: Operator, version: str) -> str:
    is_default = version == operator.versions[0]
    return version + (" (default)" if is_default else "") + (_SUFFIX if version in operator.certified else "")


async def operators(values: Mapping[str, Any]) -> int:
    """The operators, with 1 where the cluster serves their API, else 0."""
    from bedplate.kube.client import Client
    from bedplate.kube.kubeconfig import read

    file = values["cluster_kubeconfig"]
    if file is None:
        async with heads.reach(values) as reached:
            file = await _of_head(values, reached)
    async with Client(read([file], environ=os.environ)) as client:
        answer = await client.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    lines = available(msgspec.json.decode(answer.body))
    if values["json"] or values["output_remote_execution_runner"]:
        with output.reporter(values, heads.state_folder(None, None), SystemClock(), has_log=False) as reporter:
            for line in lines:
                reporter.emit(Output(line))
    else:
        _print(lines)
    return 0


async def _of_head(values: Mapping[str, Any], reached: heads.Reached) -> Any:
    from bedplate.setup.kubernetes.kubeconfig import path_of

    name = heads.cluster_of(values, reached.backend, "name one with --cluster, or give --cluster-kubeconfig FILE")
    return await path_of(reached.backend, name, reached.data)


def available(answer: Mapping[str, Any]) -> list[str]:
    """The lines for a list of CustomResourceDefinitions. One counts once the API server serves it."""
    served = {item["metadata"]["name"] for item in answer.get("items", ()) if _is_served(item)}
    width = max(len(operator.name) for operator in CHECKED)
    rows = [f"{operator.name:<{width}} : {int(operator.crd in served)}" for operator in CHECKED]
    return [f"{'OPERATOR':-<{width}} : api_available", *rows]


def _is_served(definition: Mapping[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions", ())
    is_established = any(row["type"] == "Established" and row["status"] == "True" for row in conditions)
    return is_established and any(version.get("served") for version in definition["spec"]["versions"])


def _print_json(rows: Iterable[Mapping[str, Any]]) -> None:
    _print([msgspec.json.encode(row).decode() for row in rows])


def _print(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
