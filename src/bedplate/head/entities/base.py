"""What many declarations share: the first rows, roles, environments, exclude list snippets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bedplate.head.objects import Obj
from bedplate.head.schema.entity import Entity, Field, Group, Key, TypeName
from bedplate.head.schema.kinds import Bool, Choice, Text
from bedplate.head.schema.ranges import ListOf

__all__ = ["EXCLUDE_MODES", "FILE_MODE", "OWNER", "SERVICE_ACTION", "ExcludeListSnippet", "Named", "Role"]

EXCLUDE_MODES = ("sync", "full", "update", "grab")


class Named(Entity):
    """An object with a name."""

    name = Key()
    revision = Field("Revision", Text(), doc="a free remark, such as a change number")


class Role(Named):
    """A unit of service configuration that a node, a category or an overlay assigns."""

    noun = "role"
    service_names: ClassVar[tuple[str, ...]] = ()

    type = TypeName("Type", doc="which kind of role this is")
    add_services = Field("Add services", Bool(), True, doc="add the role's services to the nodes that have the role")

    @classmethod
    def services(cls, obj: Obj) -> Sequence[str]:
        """The services the role runs, whether or not they are tied to nodes."""
        return cls.service_names


class ExcludeListSnippet(Named):
    """Paths that an image update leaves alone."""

    noun = "exclude list snippet"
    columns = ("mode_full", "mode_sync", "mode_update", "mode_grab", "disabled")
    groups = (
        Group("Paths", ("name", "disabled", "exclude_list")),
        Group("Lists", ("mode_sync", "mode_full", "mode_update", "mode_grab")),
    )

    disabled = Field("Disabled", Bool(), False, doc="leave the snippet out of every list")
    exclude_list = Field("Exclude list", ListOf(Text()), doc="path patterns, one per entry")
    mode_sync = Field("Mode sync", Bool(), True, doc="part of the list used when a node syncs at boot")
    mode_full = Field("Mode full", Bool(), False, doc="part of the list used for a full installation")
    mode_update = Field("Mode update", Bool(), True, doc="part of the list used by an image update of a running node")
    mode_grab = Field("Mode grab", Bool(), False, doc="part of the list used when an image is created from a node")

    @classmethod
    def modes(cls, obj: Obj) -> list[str]:
        """The lists this snippet belongs to."""
        if cls.disabled.value(obj):
            return []
        fields = {"sync": cls.mode_sync, "full": cls.mode_full, "update": cls.mode_update, "grab": cls.mode_grab}
        return [mode for mode in EXCLUDE_MODES if fields[mode].value(obj)]


# The forms of owners and modes of managed files, and what a written file does to its service.
OWNER = Text(r"[A-Za-z_][A-Za-z0-9_.-]*\$?|[0-9]+", "a user or group name")
FILE_MODE = Text(r"0?[0-7]{3,4}", "a file mode (for example 0644)")
SERVICE_ACTION = Choice(("NONE", "RESTART", "RELOAD"))
