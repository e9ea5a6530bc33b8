"""Process proxies of Jupyter Enterprise Gateway."""
