"""What Jupyter Enterprise Gateway needs to start kernels as CMJupyterKernels."""
