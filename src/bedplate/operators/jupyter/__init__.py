"""The Jupyter kernel operator: from a CMJupyterKernel to a pod with a kernel and its sidecar, and its end."""
