"""Charts of a site as applications of the head: Kyverno with its policies, and operators.

In: answers, helm. Out: which releases there are (pure), and the text of an application for each: the objects that helm
makes of the chart, in the namespace of the release, without the chart's hooks, which only helm itself would run. Custom
definitions are not part of the text: those of one chart can be larger than an object of the head may be. A deployment
applies them once, as helm does with definitions. Every chart and every file with values is read before a deployment
changes anything; what is wrong is told with its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bedplate.core import errors, yamls
from bedplate.head.applications import manifests
from bedplate.head.applications.manifests import Manifest
from bedplate.operators.permissions import kyverno
from bedplate.setup import helm
from bedplate.setup.operators import OPERATORS

__all__ = ["Release", "Rendered", "features", "of_answers", "placed", "render"]

_DEFINITION = "CustomResourceDefinition"
_HOOK = "helm.sh/hook"
_KEPT_HOOKS = ("crd-install",)
_CLUSTER_WIDE = frozenset(
    {
        *("APIService", "CSIDriver", "CSINode", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding"),
        *("CustomResourceDefinition", "FlowSchema", "IngressClass", "MutatingAdmissionPolicy"),
        *("MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume"),
        *("PriorityClass", "PriorityLevelConfiguration", "RuntimeClass", "StorageClass", "ValidatingAdmissionPolicy"),
        *("ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "VolumeAttachment"),
        *("VolumeAttributesClass", "DeviceClass", "ResourceSlice", "ServiceCIDR", "IPAddress"),
    }
)
"""The kinds of Kubernetes itself that have no namespace."""
_BUILT_IN = frozenset({"", "apps", "autoscaling", "batch", "policy"})
_PRESENT = ("default", "kube-system", "kube-public", "kube-node-lease")
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Release:
    """A chart that becomes an application. `key` is that of the chart in the answers, `version` the one that the chart
    must have; empty: any."""

    application: str
    key: str
    chart: helm.Chart
    version: str = ""


class Rendered(NamedTuple):
    """The texts of applications by name, the custom definitions of all charts, and what people should know."""

    texts: dict[str, str]
    definitions: list[Mapping[str, Any]]
    warnings: list[str]


def of_answers(answers: Mapping[str, Any]) -> tuple[Release, ...]:
    """The releases that answers ask for. Pure."""
    kubernetes = answers["kubernetes"]
    policy, chosen = kubernetes["kyverno"], kubernetes["operators"]
    releases = []
    if policy["install"]:
        values = kyverno.engine_values(is_ha=policy["ha"])
        chart = helm.Chart("kyverno", "kyverno", policy["chart"], values)
        releases.append(Release("kyverno", "kubernetes.kyverno.chart", chart))
    if policy["install"] and policy["policies"]:
        chart = helm.Chart("kyverno-policies", "kyverno", policy["policies_chart"], _policies(features(answers)))
        releases.append(Release("kyverno_policies", "kubernetes.kyverno.policies_chart", chart))
    for operator in OPERATORS:
        given = chosen.get(operator.name)
        if given is None or not given["chart"]:
            continue
        name, namespace = operator.release or operator.name, operator.namespace or operator.name
        chart = helm.Chart(name, namespace, given["chart"], {}, given["values_file"], given["options"])
        key = f"kubernetes.operators.{operator.name}.chart"
        releases.append(Release(operator.application, key, chart, given["version"]))
    return tuple(releases)


def _policies(chosen: frozenset[str]) -> dict[str, Any]:
    """The values of the policies. Our local path provisioner makes folders with pods in the namespace cm."""
    values = kyverno.policy_values(chosen)
    if "local-path" in chosen:
        values["policyExclude"]["disallow-host-path"]["any"][0]["resources"]["namespaces"].append("cm")
    return values


def features(answers: Mapping[str, Any]) -> frozenset[str]:
    """What the cluster has that needs an exception from Kyverno's policies. Pure."""
    kubernetes = answers["kubernetes"]
    candidates = {
        "gpu-operator": "gpu-operator" in kubernetes["operators"],
        "local-path": bool(kubernetes["local_path"]["path"]),
        "prometheus": "prometheus-operator" in kubernetes["operators"],
    }
    return frozenset(name for name, is_on in candidates.items() if is_on)


def render(releases: Sequence[Release], kubernetes: str) -> Rendered:
    """What charts amount to. Raises `Invalid` with everything that is wrong, by key; `Unavailable` without helm."""
    if not releases:
        return Rendered({}, [], [])
    program = helm.find()
    rendered: dict[str, tuple[Manifest, ...]] = {}
    problems: list[str] = []
    for release in releases:
        wrong = _unreadable(release)
        try:
            rendered[release.application] = () if wrong else _rendered(program, release, kubernetes)
        except errors.Invalid as err:
            wrong = [f"{release.key}: {text}" for text in (err.problems or [err.message])]
        problems += wrong
    if problems:
        raise errors.Invalid(
            "charts cannot be used", problems=problems, hint="nothing was changed; correct the answers"
        )
    everything = [each for objects in rendered.values() for each in objects]
    scopes = _scopes(everything)
    texts = {
        release.application: _text(placed(rendered[release.application], release.chart.namespace, scopes))
        for release in releases
    }
    definitions = {each.name: each.body for each in everything if each.kind == _DEFINITION and not _is_hook(each)}
    warnings = [text for release in releases if (text := _left_out(release, rendered[release.application]))]
    return Rendered(texts, list(definitions.values()), warnings)


def _left_out(release: Release, objects: Sequence[Manifest]) -> str:
    """What to say about the hooks of a chart."""
    hooks = [str(each) for each in objects if _is_hook(each)]
    more = f" and {len(hooks) - _SHOWN} more" if len(hooks) > _SHOWN else ""
    named = f"{', '.join(hooks[:_SHOWN])}{more}"
    return f"Warning: {release.application}: hooks of the chart are left out: {named}" if hooks else ""


def _unreadable(release: Release) -> list[str]:
    """What is wrong with the files of a release, by key."""
    chart, problems = release.chart, []
    if not Path(chart.path).exists():
        problems.append(f"{release.key}: {chart.path} cannot be read: No such file or directory")
    if chart.values_file:
        try:
            content = yamls.load(Path(chart.values_file).read_bytes())
            wrong = "" if content is None or isinstance(content, dict) else "must be a mapping of values"
        except OSError as err:
            wrong = f"cannot be read: {err.strerror}"
        except (yaml.YAMLError, UnicodeDecodeError, ValueError) as err:
            wrong = f"is not valid YAML: {' '.join(str(err).split())}"
        if wrong:
            problems.append(f"{release.key.removesuffix('chart')}values_file: {chart.values_file} {wrong}")
    return problems


def _rendered(program: Path, release: Release, kubernetes: str) -> tuple[Manifest, ...]:
    about = helm.about(program, release.chart.path)
    has = [str(about[key]).removeprefix("v") for key in ("version", "appVersion") if about.get(key)]
    if release.version and release.version not in has:
        key = f"{release.key.removesuffix('chart')}version"
        told = " or ".join(dict.fromkeys(has)) or "unknown"
        raise errors.Invalid(f"{release.chart.path} is of version {told}, and {key} is {release.version}")
    objects = manifests.read(helm.template(program, release.chart, kubernetes))
    if not any(not _is_hook(each) for each in objects):
        raise errors.Invalid(f"{release.chart.path} has no objects with these values")
    return objects


def _is_hook(manifest: Manifest) -> bool:
    kinds = (manifest.body["metadata"].get("annotations") or {}).get(_HOOK, "")
    return bool(kinds) and kinds not in _KEPT_HOOKS


def _scopes(objects: Iterable[Manifest]) -> dict[tuple[str, str], bool]:
    """Whether custom kinds have a namespace, by group and kind, as their definitions say."""
    scopes = {}
    for each in objects:
        if each.kind == _DEFINITION:
            spec = each.body.get("spec") or {}
            kind = (spec.get("names") or {}).get("kind", "")
            scopes[str(spec.get("group")), str(kind)] = spec.get("scope") == "Namespaced"
    return scopes


def placed(
    objects: Iterable[Manifest], namespace: str, scopes: Mapping[tuple[str, str], bool]
) -> list[Mapping[str, Any]]:
    """Objects in the namespace of their release where they name none, with that namespace in front, without hooks and
    definitions. Pure. A custom kind whose definition is unknown stays as it is: a namespace would be wrong for one that
    has none."""
    bodies: list[Mapping[str, Any]] = []
    namespaces: set[str] = set()
    for each in objects:
        if _is_hook(each) or each.kind == _DEFINITION:
            continue
        is_built_in = each.group in _BUILT_IN or each.group.endswith(".k8s.io")
        default = is_built_in and each.kind not in _CLUSTER_WIDE
        body = each.body
        if scopes.get((each.group, each.kind), default):
            own = each.namespace or namespace
            namespaces.add(own)
            body = {**body, "metadata": {**body["metadata"], "namespace": own}}
        bodies.append(body)
    present = {each.name for each in objects if (each.group, each.kind) == ("", "Namespace")}
    if namespace in namespaces - present - {*_PRESENT}:
        bodies.insert(0, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    return bodies


def _text(bodies: Sequence[Mapping[str, Any]]) -> str:
    """Objects as the text of an application, in which no dollar begins a variable."""
    text: str = yaml.dump_all(bodies, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=1000)
    return text.replace("$", "$$")
