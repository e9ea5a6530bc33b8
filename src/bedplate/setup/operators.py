"""The operators that the setup tool knows: their versions, and the API by which they are recognised in a cluster.

Data alone. The first version of an operator is its default. A site brings the chart; those of this project come with
their manifests.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CERTIFIED_MINORS", "CHECKED", "OPERATORS", "OWN", "SPELLINGS", "Operator"]

CERTIFIED_MINORS: frozenset[str] = frozenset()
"""Minor releases of Kubernetes that are certified for NVIDIA AI Enterprise: none of ours is."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator. `crd` is a CustomResourceDefinition that it brings; `by_minor` chooses by the Kubernetes release;
    `release` and `namespace` are those of its chart, where they are not its name; `aliases` are other spellings."""

    title: str
    name: str
    versions: tuple[str, ...] = ()
    certified: frozenset[str] = frozenset()
    by_minor: tuple[tuple[str, str], ...] = ()
    crd: str = ""
    release: str = ""
    namespace: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """Every version that can be chosen, the default first."""
        return self.versions or tuple(version for _, version in reversed(self.by_minor))

    @property
    def application(self) -> str:
        """The name of its application."""
        return self.name.replace("-", "_")


_GPU_24 = ("24.6.2", "24.6.1", "24.6.0", "24.3.0")
_GPU_23 = ("23.9.2", "23.9.1", "23.9.0", "23.6.2", "23.6.1", "23.6.0", "23.3.2", "23.3.1", "23.3.0")
_GPU = (*_GPU_24, *_GPU_23, "22.9.2", "22.9.1", "22.9.0")
_GPU_CERTIFIED = ("24.6.2", "23.9.1", "23.9.0", "23.6.1", "23.3.2", "23.3.1", "22.9.1", "22.9.0")
_NETWORK = ("24.7.0", "24.4.1", "24.4.0", "23.10.0", "23.7.0", "23.5.0", "23.1.0")
_NETQ = (("1.27", "4.9"), ("1.28", "4.10"), ("1.29", "4.11"), ("1.30", "4.12"), ("1.31", "4.13"))

OPERATORS = (
    Operator("NVIDIA GPU Operator", "gpu-operator", _GPU, frozenset(_GPU_CERTIFIED)),
    Operator("MetalLB", "metallb", ("0.14.8",), namespace="metallb-system"),
    Operator("NetQ", "netq", by_minor=_NETQ),
    Operator("Network Operator", "network-operator", _NETWORK, frozenset(_NETWORK[4:])),
    Operator("OVN CNI", "ovn-cni", ("1.1.5",)),
    Operator(
        "Postgres Operator",
        "postgresql-operator",
        ("1.13.0", "1.12.2", "1.10.1", "1.10.0", "1.9.0"),
        crd="postgresqls.acid.zalan.do",
        release="postgres-operator",
        namespace="postgres-operator",
        aliases=("postgres-operator", "cm-kubernetes-postgresql-operator"),
    ),
    Operator("Prometheus Adapter", "prometheus-adapter", ("4.11.0",), namespace="prometheus"),
    Operator("Prometheus Operator Stack", "prometheus-operator", ("62.7.0",), namespace="prometheus"),
    Operator("Run:ai", "runai", ("2.18.45",), release="cluster-installer"),
    Operator("SDN", "sdn", ("1.0.3",)),
    Operator(
        "CM Jupyter Kernel Operator",
        "cm-jupyter-kernel-operator",
        ("0.2.1",),
        crd="cmjupyterkernels.apps.brightcomputing.com",
        namespace="cm",
        aliases=("jupyter-kernel-operator",),
    ),
    Operator(
        "CM Kubernetes MPI Operator",
        "cm-kubernetes-mpi-operator",
        ("0.5.0",),
        crd="mpijobs.kubeflow.org",
        namespace="cm",
    ),
    Operator(
        "Spark Operator",
        "spark-operator",
        ("1.4.6",),
        crd="sparkapplications.sparkoperator.k8s.io",
        aliases=("cm-kubernetes-spark-operator",),
    ),
)

OWN = "cm-jupyter-kernel-operator"
"""The operator whose manifests are part of this project: it needs no chart."""
SPELLINGS = {word: operator for operator in OPERATORS for word in (operator.name, *operator.aliases)}
"""Operators by every spelling of their names."""

_ORDER = ("cm-jupyter-kernel-operator", "postgresql-operator", "spark-operator", "cm-kubernetes-mpi-operator")
CHECKED = tuple(next(operator for operator in OPERATORS if operator.name == name) for name in _ORDER)
"""Those that users can be given permissions for, in the order in which they are listed."""
