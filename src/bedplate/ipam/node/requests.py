"""Requests of CNI plugins (§7): what has to be in them, and what they mean for the ledger.

In: decoded messages. Out: checked parameters, pool keys, owners; `Failed` with INVALID_ARGUMENT otherwise. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.ipam import addresses
from bedplate.ipam.node.grpcstatus import Code, Failed
from bedplate.ipam.node.pb import nvidia_ipam_pb2 as pb
from bedplate.ipam.node.reservations import Owner
from bedplate.ipam.pools import cidrpool_key, ippool_key

__all__ = ["check_interface", "check_pools", "checked", "keys", "owner", "required"]


def checked(request: pb.AllocateRequest | pb.IsAllocatedRequest) -> pb.IPAMParameters:
    """The parameters, once all of §7's checks have passed, in its order."""
    if not request.HasField("parameters"):
        raise required("parameters")
    parameters = request.parameters
    check_pools(parameters)
    check_interface(parameters)
    if not parameters.HasField("metadata"):
        raise required("parameters.metadata")
    if not parameters.metadata.k8s_pod_name:
        raise required("parameters.metadata.k8s_pod_name")
    if not parameters.metadata.k8s_pod_namespace:
        raise required("parameters.metadata.k8s_pod_namespace")
    for position, text in enumerate(parameters.requested_ips):
        if addresses.parse_address(text) is None:
            raise Failed(Code.INVALID_ARGUMENT, f"parameters.requested_ips[{position}] is no IP address")
    if parameters.features.allocate_default_gateway and parameters.requested_ips:
        raise Failed(Code.INVALID_ARGUMENT, "allocate_default_gateway and requested_ips exclude each other")
    return parameters


def check_pools(parameters: pb.IPAMParameters) -> None:
    """One or two pools are named."""
    if not 1 <= len(parameters.pools) <= 2:
        raise Failed(Code.INVALID_ARGUMENT, "parameters.pools: one or two pools are needed")
    for position, name in enumerate(parameters.pools):
        if not name:
            raise Failed(Code.INVALID_ARGUMENT, f"parameters.pools[{position}] is empty")


def check_interface(parameters: pb.IPAMParameters) -> None:
    """It says whose interface it is about."""
    if not parameters.cni_containerid:
        raise required("parameters.cni_containerid")
    if not parameters.cni_ifname:
        raise required("parameters.cni_ifname")


def required(field: str) -> Failed:
    """The failure of a request that lacks something."""
    return Failed(Code.INVALID_ARGUMENT, f"{field} is required")


def keys(names: Iterable[str], kind: int) -> list[str]:
    """The pools' keys; what is no CIDRPool is an IPPool."""
    key = cidrpool_key if kind == pb.POOL_TYPE_CIDRPOOL else ippool_key
    return [key(name) for name in names]


def owner(parameters: pb.IPAMParameters) -> Owner:
    """Whose the address will be."""
    about = parameters.metadata
    return Owner(
        parameters.cni_containerid,
        parameters.cni_ifname,
        about.k8s_pod_uid,
        about.k8s_pod_name,
        about.k8s_pod_namespace,
        about.device_id,
    )
