"""Oxide: instances of one project of a silo, and load balancers made of floating IPs."""
