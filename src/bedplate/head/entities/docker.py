"""The role `Docker::Host` and its storage backends."""

from __future__ import annotations

from bedplate.head.entities.base import Named, Role
from bedplate.head.schema.entity import Field, Group, Submode, TypeName
from bedplate.head.schema.kinds import Bool, Choice, HostAddress, Integer, Path, Size, Text
from bedplate.head.schema.ranges import ListOf

__all__ = ["Aufs", "DeviceMapper", "DockerHostRole", "Overlay2"]

_REMAP = r"[0-9]+(:[0-9]+)?|[A-Za-z_][A-Za-z0-9_-]*\$?(:[A-Za-z_][A-Za-z0-9_-]*\$?)?"


class _StorageBackend(Named):
    """Where the container runtime keeps its layers."""

    noun = "storage backend"
    columns = ("type",)

    type = TypeName("Type", doc="the storage driver")

    @classmethod
    def type_name(cls) -> str:
        return cls.word


class Aufs(_StorageBackend):
    """The aufs driver; legacy, Ubuntu only."""

    word = "aufs"
    options = Field("Options", ListOf(Text()), doc="storage options, passed on unchanged")


class Overlay2(_StorageBackend):
    """The overlay2 driver (recommended)."""

    word = "overlay2"
    options = Field("Options", ListOf(Text()), doc="storage options, passed on unchanged")


class DeviceMapper(_StorageBackend):
    """The device mapper driver, deprecated; on loop files, or on a thin pool when `Pool Device` is set."""

    word = "devicemapper"
    groups = (
        Group("Identity", ("name", "type")),
        Group("Loop files", ("loop_data_size", "loop_metadata_size", "loop_device_size")),
        Group("Thin pool", ("pool_device", "block_size", "blk_discard")),
        Group("File system", ("filesystem", "mkfs_arguments", "mount_options"), is_rare=True),
    )

    loop_data_size = Field("Loop Data Size", Size(), doc="dm.loopdatasize: size of the data file; 100GB if unset")
    loop_metadata_size = Field(
        "Loop Metadata Size", Size(), doc="dm.loopmetadatasize: size of the metadata file; 2GB if unset"
    )
    loop_device_size = Field("Loop Device Size", Size(), doc="dm.basesize: size of the base device of each container")
    pool_device = Field("Pool Device", Path(), doc="dm.thinpooldev: an existing thin pool")
    filesystem = Field("Filesystem", Choice(("xfs", "ext4")), "xfs", doc="dm.fs: file system of the base device")
    block_size = Field("Block Size", Size(), "64K", doc="dm.blocksize: block size of the thin pool")
    blk_discard = Field("Blk Discard", Bool(), True, doc="dm.blkdiscard: discard freed blocks")
    mkfs_arguments = Field("Mkfs Arguments", Text(), doc="dm.mkfsarg: passed to mkfs")
    mount_options = Field("Mount Options", Text(), doc="dm.mountopt: options of the mount")


class DockerHostRole(Role):
    """Runs the Docker engine."""

    names = ("Docker::Host",)
    service_names = ("docker",)
    groups = (
        Group("Identity", ("name", "type", "add_services")),
        Group("Storage", ("spool", "tmp_dir", "storage_backends")),
        Group("Network", ("bridge", "bridge_ip", "mtu", "iptables", "api_sockets")),
        Group("Security", ("enable_selinux", "user_namespace_remap", "insecure_registries")),
        Group("Runtime", ("runtime", "containerd_socket", "default_ulimits")),
        Group(
            "TLS",
            ("enable_tls", "verify_tls", "tls_ca", "tls_certificate", "tls_key", "certificates_path"),
            is_rare=True,
        ),
        Group("Further options", ("debug", "log_level", "options"), is_rare=True),
    )

    spool = Field("Spool", Path(), "/var/lib/docker", doc="root of the runtime's data")
    tmp_dir = Field("Tmp dir", Path(), "$spool/tmp", doc="temporary files; $spool is replaced by the value of Spool")
    enable_selinux = Field("Enable SELinux", Bool(), True, doc="SELinux support in the daemon")
    default_ulimits = Field("Default Ulimits", ListOf(Text()), doc="default ulimits of all containers")
    debug = Field("Debug", Bool(), False, doc="debug mode")
    log_level = Field(
        "Log Level",
        Choice(("fatal", "error", "warn", "info", "debug")),
        "info",
        doc="log level of the daemon, from least to most verbose",
    )
    bridge_ip = Field("Bridge IP", HostAddress(), doc="address of the bridge")
    bridge = Field("Bridge", Text(), doc="attach containers to this bridge")
    mtu = Field("MTU", Integer(0, 65535), 0, doc="MTU of containers in bytes; 0 leaves it unset")
    api_sockets = Field(
        "API Sockets", ListOf(Text()), ("unix:///var/run/docker.sock",), doc="sockets the daemon listens on"
    )
    iptables = Field("Iptables", Bool(), True, doc="let the daemon manage iptables rules")
    user_namespace_remap = Field(
        "User Namespace Remap",
        Text(_REMAP, "UID, UID:GID, username or username:groupname"),
        doc="the user that containers' root is mapped to: UID, UID:GID, username or username:groupname",
        notice="needs the kernel option user_namespace.enable=1 and a reboot",
    )
    insecure_registries = Field(
        "Insecure Registries", ListOf(Text()), doc="registries whose certificates are not verified"
    )
    enable_tls = Field("Enable TLS", Bool(), False, doc="serve TLS")
    verify_tls = Field("Verify TLS", Bool(), False, doc="serve TLS and verify the peer")
    tls_ca = Field("TLS CA", Path(), doc="file with the certificate authority")
    tls_certificate = Field("TLS Certificate", Path(), doc="file with the certificate")
    tls_key = Field("TLS Key", Path(), doc="file with the key")
    certificates_path = Field("Certificates Path", Path(), "/etc/docker", doc="folder of certificates")
    storage_backends = Submode(
        "Storage Backends", Aufs, DeviceMapper, Overlay2, doc="where layers are kept", shell="storagebackends"
    )
    containerd_socket = Field("Containerd Socket", Path(), doc="socket of a containerd that runs separately")
    runtime = Field("Runtime", Text(), "runc", doc="default runtime")
    options = Field("Options", ListOf(Text()), doc="additional parameters of the daemon")
