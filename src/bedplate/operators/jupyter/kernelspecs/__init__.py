"""Kernelspecs from templates: the form of a kernel, filled in, becomes `kernel.json` and a CMJupyterKernel."""
