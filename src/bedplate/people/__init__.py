"""People on a Kubernetes cluster: what a grant is, which objects it becomes, and a person's certificate and kubeconfig.

The setup tool (`setup/people`) and the head (`head/people`) decide and write with the same functions: `grants` reads
the permission objects, `plan` says what to change, `cluster` changes it, `issue` gives a person a certificate.
"""
