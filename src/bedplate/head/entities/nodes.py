"""Devices, categories, software images and overlays: what decides which node gets which roles."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import ClassVar

from bedplate.head.entities.base import FILE_MODE, Named
from bedplate.head.entities.roles import ROLES
from bedplate.head.entities.site import Network
from bedplate.head.objects import Obj
from bedplate.head.schema.entity import Entity, Field, Group, Key, Look, Submode, TypeName
from bedplate.head.schema.kinds import BLANKS, Address, Blob, Bool, Choice, Integer, Mac, Path, SecretText, Text
from bedplate.head.schema.ranges import ListOf, NodeList, Reference

__all__ = [
    "BmcInterface",
    "Category",
    "ConfigurationOverlay",
    "Customization",
    "HeadNode",
    "PhysicalInterface",
    "PhysicalNode",
    "Service",
    "SoftwareImage",
]

INSTALL_MODES = ("AUTO", "FULL", "NOSYNC")
EDITS = ("RESTORE", "REPORT", "KEEP")
AGENT_VERSION = Text(r"[0-9][0-9A-Za-z.+~-]{0,63}", "a version, such as 0.9.0")
AGENT_ARCHIVES = ListOf(Text(r"[a-z0-9_]+=[0-9a-f]{64}", "an architecture and the SHA-256 of its archive, amd64=..."))
EDIT_PATHS = ListOf(
    Text(rf"/[^{BLANKS},=]*=({'|'.join(EDITS)})", "a path pattern and what is done, such as /etc/motd=KEEP")
)


class Service(Entity):
    """A system service that is started and monitored."""

    noun = "service"
    columns = ("monitored", "autostart")
    groups = (
        Group("Running", ("service", "run_if", "monitored", "autostart", "timeout", "belongs_to_role")),
        Group(
            "Sickness check",
            ("sickness_check_script", "sickness_check_script_timeout", "sickness_check_interval"),
            is_rare=True,
        ),
    )

    revision = Field("Revision", Text(), doc="a free remark")
    service = Key("Service", doc="the service's name")
    run_if = Field(
        "Run if",
        Choice(("ALWAYS", "ACTIVE", "PASSIVE")),
        "ALWAYS",
        doc="of several head nodes, those it runs on; other nodes always run it",
    )
    monitored = Field("Monitored", Bool(), True, doc="monitor whether it runs")
    autostart = Field("Autostart", Bool(), True, doc="restart it when it has stopped")
    timeout = Field("Timeout", Integer(-1), -1, doc="seconds a start may take; -1: no limit")
    belongs_to_role = Field("Belongs to role", Bool(), False, doc="added by a role", readonly=True)
    sickness_check_script = Field("Sickness check script", Path(), doc="a script that checks its health")
    sickness_check_script_timeout = Field(
        "Sickness check script timeout", Integer(1), 10, doc="seconds the script may take"
    )
    sickness_check_interval = Field("Sickness check interval", Integer(1), 60, doc="seconds between two checks")


def _roles() -> Submode:
    return Submode("Roles", *ROLES, doc="roles assigned here")


def _services() -> Submode:
    return Submode("Services", Service, doc="services set here, in addition to those of roles")


def _excludes(mode: str, when: str) -> Field:
    return Field(f"Exclude list {mode}", ListOf(Text()), doc=f"path patterns (of rsync) left alone {when}")


class SoftwareImage(Named):
    """A directory tree that is put onto nodes."""

    noun = "software image"
    columns = ("path",)
    groups = (
        Group("Identity", ("name", "path", "notes")),
        Group("Kernel", ("kernel_version", "kernel_parameters")),
    )

    path = Field("Path", Path(), doc="path of the directory tree on the head node")
    kernel_version = Field("Kernel version", Text(), doc="the kernel that nodes boot")
    kernel_parameters = Field("Kernel parameters", Text(), doc="parameters of that kernel")
    notes = Field("Notes", Text(), doc="free text")


class Category(Named):
    """Nodes that share an image, roles and services."""

    noun = "category"
    columns = ("software_image",)
    groups = (
        Group("Identity", ("name", "notes")),
        Group("Provisioning", ("software_image", "install_mode", "enrolment")),
        Group(
            "Exclude lists",
            ("exclude_list_sync", "exclude_list_full", "exclude_list_update", "exclude_list_grab"),
            is_rare=True,
        ),
        Group("Services", ("roles", "services")),
        Group("Agent", ("hand_edits", "hand_edit_paths", "agent_version", "agent_archives"), is_rare=True),
    )

    software_image = Field("Software image", Reference("softwareimage"), doc="the image of its nodes")
    install_mode = Field("Install mode", Choice(INSTALL_MODES), "AUTO", doc="how its nodes are installed at boot")
    enrolment = Field(
        "Enrolment",
        Choice(("TOKEN", "APPROVAL")),
        "TOKEN",
        doc="whether a token is enough to enrol its nodes, or an administrator approves each",
    )
    exclude_list_sync = _excludes("sync", "when a node syncs at boot")
    exclude_list_full = _excludes("full", "by a full installation")
    exclude_list_update = _excludes("update", "by an image update of a running node")
    exclude_list_grab = _excludes("grab", "when an image is created from a node")
    roles = _roles()
    services = _services()
    hand_edits = Field(
        "Hand edits",
        Choice(EDITS),
        "",
        doc="what agents do about files that people changed; default: as their own settings say",
    )
    hand_edit_paths = Field("Hand edit paths", EDIT_PATHS, doc="the same for single paths, by pattern")
    agent_version = Field(
        "Agent version",
        AGENT_VERSION,
        doc="the version that agents replace themselves by; default: they stay as they are",
    )
    agent_archives = Field(
        "Agent archives", AGENT_ARCHIVES, doc="the SHA-256 of that version's archive, by architecture"
    )
    notes = Field("Notes", Text(), doc="free text")


class PhysicalInterface(Named):
    """A further network interface of a device."""

    noun = "interface"
    word = "physical"
    columns = ("type", "mac", "ip", "network")
    groups: ClassVar[tuple[Group, ...]] = (
        Group("Identity", ("name", "type", "notes")),
        Group("Network", ("mac", "ip", "network")),
    )

    type = TypeName("Type", doc="an interface of the machine, or its management controller")
    mac = Field("MAC", Mac(), doc="its hardware address", unique=True)
    ip = Field("IP", Address(), doc="its address, in the range of its network", unique=True)
    network = Field("Network", Reference("network"), doc="the network it is connected to")
    notes = Field("Notes", Text(), doc="free text")

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        network = look("network", str(cls.network.value(obj) or ""))
        ip = str(cls.ip.value(obj) or "")
        extent = Network.range(network) if network is not None else None
        if ip and extent is not None and ipaddress.ip_address(ip) not in extent:
            return [f"ip: {ip} is not an address of {cls.network.value(obj)} ({extent})"]
        return []


class BmcInterface(PhysicalInterface):
    """The management controller (BMC) of a device."""

    noun = "BMC"
    word = "bmc"
    groups = (
        *PhysicalInterface.groups,
        Group("Power", ("protocol", "user_name", "password")),
    )

    protocol = Field("Protocol", Choice(("Redfish", "IPMI")), "Redfish", doc="how it is spoken to")
    user_name = Field("User name", Text(), doc="the account on it")
    password = Field("Password", SecretText(), doc="that account's password")


def _interfaces() -> Submode:
    return Submode(
        "Interfaces",
        PhysicalInterface,
        BmcInterface,
        doc="network interfaces besides the one it boots from, and its BMC",
        usual=PhysicalInterface,
    )


class _Device(Entity):
    """A machine."""

    noun = "device"
    judged_with_targets = True
    hostname = Key(
        "Hostname",
        Text(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", "a host name"),
        doc="the machine's name",
    )
    revision = Field("Revision", Text(), doc="a free remark")
    type = TypeName("Type", doc="head node or compute node")
    mac = Field(
        "MAC",
        Mac(),
        doc="hardware address of the boot interface",
        unique=True,
    )
    ip = Field("IP", Address(), doc="address in its network", unique=True)
    network = Field("Network", Reference("network"), doc="the network it is managed over")
    interfaces = _interfaces()

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        """No two interfaces of one machine have the same address; those of others are compared by an index."""
        if not obj.below("interfaces"):
            return ()
        problems, taken = [], {("ip", str(cls.ip.value(obj) or "")): "", ("mac", str(cls.mac.value(obj) or "")): ""}
        for name, interface in sorted(obj.below("interfaces").items()):
            for field in (PhysicalInterface.ip, PhysicalInterface.mac):
                value = str(field.value(interface) or "")
                if value and (field.attribute, value) in taken:
                    other = taken[field.attribute, value] or "the device itself"
                    problems.append(f"interfaces: {name} has the same {field.shell} as {other}, {value}")
                taken.setdefault((field.attribute, value), name)
        return problems


class HeadNode(_Device):
    """A machine that runs the head."""

    noun = "head node"
    word = "headnode"
    columns = ("type", "mac", "ip", "network")
    groups = (
        Group("Identity", ("hostname", "type", "notes")),
        Group("Network", ("mac", "ip", "network", "interfaces")),
        Group("Services", ("roles", "services")),
    )

    roles = _roles()
    services = _services()
    notes = Field("Notes", Text(), doc="free text")


class PhysicalNode(_Device):
    """A compute node. What it does not set itself comes from its category."""

    noun = "compute node"
    word = "physicalnode"
    columns = ("type", "mac", "category", "ip", "network")
    groups = (
        Group("Identity", ("hostname", "type", "category", "notes")),
        Group("Network", ("mac", "ip", "network", "interfaces")),
        Group("Provisioning", ("software_image", "install_mode", "next_install_mode", "data_node")),
        Group("Services", ("roles", "services")),
        Group("Agent", ("hand_edits", "hand_edit_paths", "agent_version", "agent_archives"), is_rare=True),
    )

    category = Field("Category", Reference("category"), doc="the category it belongs to")
    software_image = Field(
        "Software image",
        Reference("softwareimage"),
        doc="its image; default: the category's",
        inherits="category",
    )
    install_mode = Field(
        "Install mode", Choice(INSTALL_MODES), "", doc="how it is installed at boot", inherits="category"
    )
    next_install_mode = Field("Next install mode", Choice(INSTALL_MODES), "", doc="how the next boot installs it")
    data_node = Field("Data node", Bool(), False, doc="contains data: wiping it needs a confirmation by name")
    roles = _roles()
    services = _services()
    hand_edits = Field(
        "Hand edits", Choice(EDITS), "", doc="what its agent does about files that people changed", inherits="category"
    )
    hand_edit_paths = Field(
        "Hand edit paths", EDIT_PATHS, doc="the same for single paths, by pattern", inherits="category"
    )
    agent_version = Field(
        "Agent version", AGENT_VERSION, doc="the version that its agent replaces itself by", inherits="category"
    )
    agent_archives = Field(
        "Agent archives",
        AGENT_ARCHIVES,
        doc="the SHA-256 of that version's archive, by architecture",
        inherits="category",
    )
    notes = Field("Notes", Text(), doc="free text")


class Customization(Named):
    """A file that the overlay's nodes get."""

    noun = "customization"
    columns = ("filename", "disabled")
    groups = (
        Group("File", ("name", "filename", "disabled", "content")),
        Group("Mode", ("filemask",), is_rare=True),
    )

    filename = Field("Filename", Path(), doc="path of the file on the node")
    disabled = Field("Disabled", Bool(), False, doc="stop managing the file")
    content = Field("Content", Blob(), doc="the file")
    filemask = Field("Filemask", FILE_MODE, "0644", doc="the file's mode")


class ConfigurationOverlay(Named):
    """Roles for a set of nodes and categories; where overlays disagree, the higher priority wins."""

    noun = "configuration overlay"
    columns = ("priority", "all_head_nodes", "nodes", "categories", "roles")
    groups = (
        Group("Identity", ("name", "priority")),
        Group("Members", ("all_head_nodes", "nodes", "categories")),
        Group("Services", ("roles", "customizations")),
    )

    all_head_nodes = Field("All head nodes", Bool(), False, doc="head nodes are also members")
    priority = Field("Priority", Integer(-1, 100000), 500, doc="the overlay with the higher priority wins")
    nodes = Field("Nodes", NodeList(), doc="nodes that are members")
    categories = Field("Categories", ListOf(Reference("category")), doc="categories whose nodes are members")
    roles = Submode("Roles", *ROLES, doc="roles of its members", names_shown=True)
    customizations = Submode("Customizations", Customization, doc="files of its members")
