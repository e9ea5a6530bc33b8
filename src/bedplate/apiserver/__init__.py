"""The embedded Kubernetes API server: kinds are data, objects live in memory over `bedplate.store`."""
