"""The four controllers: node, lifecycle, service, route; each a pure plan and a thin apply."""
