"""A Kubernetes cluster on managed nodes: the stages that make it, and those that remove it without a trace.

`deploy.stages` and `remove.stages` are what the tool runs. Everything they decide is in pure modules: `settings` (what
the answers mean for a site), `objects` (what is written to the head), `kubeadm` and `coredns` (what the cluster reads).
`nodes` and `cluster` carry it out, through the head and through the new API server.
"""
