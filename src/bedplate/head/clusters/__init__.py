"""Kubernetes clusters as the head sees them: their checks, and with `head/applications` how they stand.

`judging` says what a check makes of what was seen (pure), `seeing` asks a cluster, `checks` does so again and again,
`service` is what the daemon and its front ends use.
"""
