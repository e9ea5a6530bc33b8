"""`python -m bedplate.apiserver`: the same as `bedplate apiserver`."""

from bedplate.apiserver.cli import apiserver

apiserver()
