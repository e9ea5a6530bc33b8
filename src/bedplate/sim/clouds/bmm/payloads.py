"""The objects of the BMM REST API, as plain trees.

In: what a caller says of a machine. Out: Instance, Machine, Site and InstanceType as the server writes them, every
field present that the document lists and a tenant sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["STATUSES", "instance", "instance_type", "interface", "machine", "site", "status_detail", "with_status"]

STATUSES = (
    "Pending",
    "Provisioning",
    "Configuring",
    "Ready",
    "Updating",
    "Rebooting",
    "Terminating",
    "Error",
    # Known to the server, absent from its document:
    "Terminated",
    "Unknown",
    "BootCompleted",
)
_MESSAGES = {
    "Pending": "Request received, pending processing",
    "Ready": "Instance is ready for use",
    "Error": "Machine does not answer: power is off",
    "Terminating": "Instance termination was requested",
}


def status_detail(status: str, now: str) -> dict[str, Any]:
    return {"status": status, "message": _MESSAGES.get(status, f"Instance is {status}"), "created": now, "updated": now}


def interface(
    identifier: str, instance_id: str, subnet_id: str, addresses: Sequence[str], now: str, **changes: Any
) -> dict[str, Any]:
    """An Ethernet interface; `changes` override any field (`isPhysical`, `status`, …)."""
    digits = identifier.replace("-", "")
    return {
        "id": identifier,
        "instanceId": instance_id,
        "subnetId": subnet_id,
        "vpcPrefixId": None,
        "isPhysical": True,
        "device": None,
        "deviceInstance": None,
        "virtualFunctionId": None,
        "macAddress": "-".join(["02", *(digits[start : start + 2].upper() for start in range(0, 10, 2))]),
        "ipAddresses": list(addresses),
        "status": "Ready",
        "created": now,
        "updated": now,
        **changes,
    }


def instance(
    identifier: str,
    name: str,
    *,
    owner: Mapping[str, str],
    machine_id: str,
    interfaces: Sequence[Mapping[str, Any]],
    status: str,
    labels: Mapping[str, str],
    nvlink: Sequence[Mapping[str, Any]],
    now: str,
) -> dict[str, Any]:
    """An Instance; `owner` holds its tenantId, siteId, instanceTypeId and the other fields that name something."""
    return {
        "id": identifier,
        "name": name,
        "description": "",
        "controllerInstanceId": identifier,
        **owner,
        "machineId": machine_id,
        "ipxeScript": None,
        "alwaysBootWithCustomIpxe": False,
        "phoneHomeEnabled": False,
        "userData": None,
        "labels": dict(labels),
        "isUpdatePending": False,
        "serialConsoleUrl": None,
        "networkSecurityGroupId": None,
        "networkSecurityGroupInherited": False,
        "tpmEkCertificate": None,
        "status": status,
        "interfaces": [dict(each) for each in interfaces],
        "infinibandInterfaces": [],
        "dpuExtensionServiceDeployments": [],
        "nvLinkInterfaces": [dict(each) for each in nvlink],
        "sshKeyGroupIds": [],
        "sshKeyGroups": [],
        "statusHistory": [status_detail(status, now)],
        "created": now,
        "updated": now,
    }


def with_status(data: Mapping[str, Any], status: str, now: str) -> dict[str, Any]:
    """The same Instance in another status."""
    history = [status_detail(status, now), *data["statusHistory"]][:20]
    return {**data, "status": status, "statusHistory": history, "updated": now}


def machine(identifier: str, instance_data: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The Machine below an Instance, as a tenant sees it."""
    interfaces = [
        {
            "id": each["id"],
            "machineId": identifier,
            "controllerInterfaceId": each["id"],
            "controllerSegmentId": each["subnetId"],
            "attachedDpuMachineID": None,
            "subnetId": each["subnetId"],
            "hostname": instance_data["name"],
            "isPrimary": position == 0,
            "macAddress": each["macAddress"],
            "ipAddresses": each["ipAddresses"],
            "created": now,
            "updated": now,
        }
        for position, each in enumerate(instance_data["interfaces"])
    ]
    return {
        "id": identifier,
        "infrastructureProviderId": instance_data["infrastructureProviderId"],
        "siteId": instance_data["siteId"],
        "instanceTypeId": instance_data["instanceTypeId"],
        "instanceId": instance_data["id"],
        "tenantId": instance_data["tenantId"],
        "controllerMachineId": identifier,
        "controllerMachineType": "x86_64",
        "hwSkuDeviceType": "gpu",
        "vendor": "Dell Inc.",
        "productName": "PowerEdge XE9680",
        "serialNumber": identifier[-10:].upper(),
        "machineCapabilities": [{"type": "GPU", "name": "NVIDIA H100", "capacity": "80GB", "count": 8}],
        "machineInterfaces": interfaces,
        "maintenanceMessage": None,
        "health": {"source": "aggregate-host-health", "observedAt": None, "successes": [], "alerts": []},
        "labels": {},
        "status": "InUse",
        "isUsableByTenant": True,
        "statusHistory": [{"status": "InUse", "message": "Machine is in use", "created": now, "updated": now}],
        "created": now,
        "updated": now,
    }


def site(identifier: str, name: str, org: str, provider_id: str, place: Sequence[str], now: str) -> dict[str, Any]:
    """A Site; `place` is city, state, country."""
    city, state, country = place
    return {
        "id": identifier,
        "name": name,
        "description": "",
        "org": org,
        "infrastructureProviderId": provider_id,
        "siteControllerVersion": "1.0.0",
        "siteAgentVersion": "1.0.0",
        "serialConsoleHostname": f"console.{name}.example.com",
        "isSerialConsoleEnabled": False,
        "serialConsoleIdleTimeout": None,
        "serialConsoleMaxSessionLength": None,
        "isSerialConsoleSSHKeysEnabled": False,
        "isOnline": True,
        "status": "Registered",
        "statusHistory": [{"status": "Registered", "message": "Site is registered", "created": now, "updated": now}],
        "location": {"city": city, "state": state, "country": country},
        "contact": {"email": f"{name}@example.com"},
        "capabilities": {"nativeNetworking": True, "networkSecurityGroup": True, "nvLinkPartition": True},
        "created": now,
        "updated": now,
    }


def instance_type(identifier: str, name: str, provider_id: str, site_id: str, now: str) -> dict[str, Any]:
    """An InstanceType."""
    return {
        "id": identifier,
        "name": name,
        "description": "",
        "controllerMachineType": "x86_64",
        "infrastructureProviderId": provider_id,
        "siteId": site_id,
        "labels": {},
        "machineCapabilities": [{"type": "GPU", "name": "NVIDIA H100", "capacity": "80GB", "count": 8}],
        "status": "Ready",
        "statusHistory": [{"status": "Ready", "message": "Instance Type is ready", "created": now, "updated": now}],
        "created": now,
        "updated": now,
    }
