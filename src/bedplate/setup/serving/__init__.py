"""The setup tool behind the head's page and REST API (`bedplate.head.setups`).

form.py      the questions of the declaration as data, with values and problems (pure)
runs.py      the last run for a cluster: what its journal, its lock and its process say together
tool.py      starts the tool as a process of its own, and tells when a run moves on
"""

from bedplate.setup.serving.tool import KubernetesSetups

__all__ = ["KubernetesSetups"]
