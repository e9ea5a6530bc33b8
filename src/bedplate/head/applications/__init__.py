"""Applications of Kubernetes clusters: manifests of the tree that the head keeps applied.

`manifests` reads them, `planning` decides (both pure), `kinds` asks a server what it serves, `applying` and `pruning`
write, `records` keeps what was applied, `syncing` puts it together for one cluster, `service` for all.
"""
