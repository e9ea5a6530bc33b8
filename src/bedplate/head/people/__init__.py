"""Users of Kubernetes clusters, as the tree has them.

`deciding` says which grants the tree wants and what leads to them (pure), `renewing` when a certificate is due (pure)
and who gets one, `upkeep` does it for one cluster again and again, `service` is what the daemon and front ends use.
What a grant is and which objects it becomes is decided in `bedplate.people`, which the setup tool shares.
"""
