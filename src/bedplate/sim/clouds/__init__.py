"""Simulated clouds: NVIDIA BMM and Oxide over HTTP, with state, faults and a journal."""

from bedplate.sim.clouds.bmm import BmmCloud, BmmMachine
from bedplate.sim.clouds.server import Conditions, Machine, SimulatedCloud

__all__ = ["BmmCloud", "BmmMachine", "Conditions", "Machine", "SimulatedCloud"]
