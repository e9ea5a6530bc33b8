"""What cannot exist on one machine, simulated: thousands of nodes that register, beat, run pods and fail."""
