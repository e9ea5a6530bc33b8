"""`bedplate sim`: simulated nodes, clouds and devices, as commands."""
