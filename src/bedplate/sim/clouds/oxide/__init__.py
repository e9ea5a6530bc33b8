"""A simulated Oxide rack: `OxideCloud`."""

from bedplate.sim.clouds.oxide.cloud import OxideCloud, OxideMachine
from bedplate.sim.clouds.oxide.floating import Attachment

__all__ = ["Attachment", "OxideCloud", "OxideMachine"]
