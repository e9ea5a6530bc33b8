"""The setup tools: their stages, and the user management of `cm-kubernetes-setup`."""
