"""What the server says about itself: discovery, OpenAPI, version, health and metrics; `pages` answers the requests."""
