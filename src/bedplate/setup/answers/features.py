"""Questions about what a cluster gets besides its add-ons: ingress on 443, Kyverno, operators, NetQ, the permission
manager, the NVIDIA runtime. Their pages have the numbers 13 to 19 of the documentation. Pure.

In: the operators that the tool knows. Out: fields for the file, and further questions about single operators, which in
the file are keys below one field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bedplate.setup.answers.fields import Field, Screen, is_at, value_at
from bedplate.setup.answers.kinds import Bool, File, Names
from bedplate.setup.answers.maps import Operators, parts
from bedplate.setup.operators import OPERATORS, OWN, Operator

__all__ = ["NETQ", "OPERATORS_PATH", "SCREENS", "fields", "of_operators", "proxy_443"]

OPERATORS_PATH = "kubernetes.operators"
NETQ = "netq"
_KYVERNO = "kubernetes.kyverno"
_INGRESS_443, _KYVERNO_PAGE, _OPERATORS_PAGE, _NETQ_PAGE, _PERMISSIONS_PAGE, _NVIDIA_PAGE = 13, 14, 15, 16, 17, 19

SCREENS = (
    Screen(_INGRESS_443, "Ingress on 443", "The ingress on the port of HTTPS. Asked with the ingress controller."),
    Screen(_KYVERNO_PAGE, "Kyverno", "The policy engine, from its charts, which are files of yours."),
    Screen(_OPERATORS_PAGE, "Operators", "Operators, each from its chart, which is a file of yours."),
    Screen(_NETQ_PAGE, "NetQ", "Asked when NetQ is one of the operators."),
    Screen(_PERMISSIONS_PAGE, "Permission manager", "The rights of users on the cluster."),
    Screen(18, "Storage", "Volumes as folders of a file system that all nodes share, or of a Ceph cluster."),
    Screen(_NVIDIA_PAGE, "NVIDIA runtime", "Containers that use GPUs. The driver must be on the nodes already."),
)


def proxy_443(has_ingress: Callable[[Mapping[str, Any]], bool]) -> Field:
    """The question of the page `Ingress on 443`; its key is beside those of the ingress."""
    return Field(
        "kubernetes.ingress.proxy_443",
        Bool(),
        "Ingress on port 443",
        "The proxy of every node passes port 443 on to the ingress. Recommended; the port must be free.",
        _INGRESS_443,
        False,
        when=has_ingress,
    )


def fields() -> tuple[Field, ...]:
    """The questions whose keys are in the file."""
    return (*_kyverno(), *_others())


def _kyverno() -> tuple[Field, ...]:
    is_installed = is_at(f"{_KYVERNO}.install", True)

    def has_policies(answers: Mapping[str, Any]) -> bool:
        return is_installed(answers) and value_at(answers, f"{_KYVERNO}.policies") is True

    return (
        Field(
            f"{_KYVERNO}.install",
            Bool(),
            "Install Kyverno",
            "Install Kyverno from its chart, in the namespace kyverno.",
            _KYVERNO_PAGE,
            False,
        ),
        Field(
            f"{_KYVERNO}.ha",
            Bool(),
            "High availability",
            "Three replicas of each of its controllers.",
            _KYVERNO_PAGE,
            False,
            when=is_installed,
        ),
        Field(
            f"{_KYVERNO}.policies",
            Bool(),
            "Policies",
            "Enforce the policies of the chart kyverno-policies, except where features of the cluster need otherwise.",
            _KYVERNO_PAGE,
            False,
            when=is_installed,
        ),
        Field(
            f"{_KYVERNO}.chart",
            File(),
            "Chart",
            "The chart kyverno: a .tgz file or a folder on this machine.",
            _KYVERNO_PAGE,
            when=is_installed,
        ),
        Field(
            f"{_KYVERNO}.policies_chart",
            File(),
            "Chart of the policies",
            "The chart kyverno-policies: a .tgz file or a folder on this machine.",
            _KYVERNO_PAGE,
            when=has_policies,
        ),
    )


def _others() -> tuple[Field, ...]:
    return (
        Field(
            OPERATORS_PATH,
            Operators(),
            "Operators",
            "The operators to install; --list-operators-versions prints them with their versions.",
            _OPERATORS_PAGE,
            {},
        ),
        Field(
            "kubernetes.netq.nodes",
            Names("nodes"),
            "Nodes for NetQ",
            "1 or 3 nodes of the cluster; they get the label bedplate.dev/netq. Empty: all of its regular nodes.",
            _NETQ_PAGE,
            [],
            when=_has(NETQ),
        ),
        Field(
            "kubernetes.permissions_manager",
            Bool(),
            "Install the permission manager",
            "It makes the rights of users that --add-user creates. Its image is kubernetes.images.bedplate.",
            _PERMISSIONS_PAGE,
            False,
        ),
        Field(
            "kubernetes.nvidia_runtime",
            Bool(),
            "Install the NVIDIA container toolkit",
            "The package cm-nvidia-container-toolkit, a runtime nvidia of containerd, and the RuntimeClass nvidia.",
            _NVIDIA_PAGE,
            False,
        ),
    )


def _has(operator: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda answers: operator in (value_at(answers, OPERATORS_PATH) or {})


_WORDS = {
    "version": ("version", "The version that its chart must have."),
    "chart": ("chart", "A .tgz file or a folder on this machine."),
    "values_file": ("values file", "A YAML file with values of the chart. Empty: the chart's own."),
    "options": ("options", "Single values of the chart, such as toolkit.enabled=false, driver.version=550."),
}
_OWN_CHART = "A .tgz file or a folder on this machine. Empty: the manifests of this project."


def of_operators() -> tuple[Field, ...]:
    """The questions about each operator, which are asked once it is chosen."""
    return tuple(_part(operator, key) for operator in OPERATORS for key in parts(operator))


def _part(operator: Operator, key: str) -> Field:
    kind, default = parts(operator)[key]
    words, about = _WORDS[key]
    return Field(
        f"{OPERATORS_PATH}.{operator.name}.{key}",
        kind,
        f"{operator.title}: {words}",
        _OWN_CHART if (operator.name, key) == (OWN, "chart") else about,
        _OPERATORS_PAGE,
        default,
        when=_has(operator.name),
    )
