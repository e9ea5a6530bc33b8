"""The way of a request through the server, stage by stage: `routes` reads the path, `handler` runs the stages."""
