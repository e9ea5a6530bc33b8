"""cm-kube-diagnose: one report of how a Kubernetes cluster stands, for whoever has to find out why it does not.

report.py      sections and findings, masked, as text, JSON or an archive
collecting.py  asks the head, the API server and the nodes; what cannot be read becomes a finding
command.py     the command line
"""
