"""`bedplate doctor`: what is wrong with a cluster's cloud controller manager, and the command that fixes it."""
