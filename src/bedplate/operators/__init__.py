"""Controllers for people and programs on a cluster, one package each."""
