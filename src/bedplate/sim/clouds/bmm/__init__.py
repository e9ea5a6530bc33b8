"""A simulated NVIDIA Bare Metal Manager: `BmmCloud`."""

from bedplate.sim.clouds.bmm.cloud import BmmCloud, BmmMachine

__all__ = ["BmmCloud", "BmmMachine"]
