"""Models and names only: lean Kubernetes types, resource descriptors, well-known labels. No I/O."""
