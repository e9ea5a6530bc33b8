"""The embedded Kubernetes API server: kinds are data, state is in `store`, see docs/designs/0001-ground.md."""
