"""Rehearsing an upgrade in a lab: `casting` decides what the lab is like, `writing` is its client, `outcome` tells."""
