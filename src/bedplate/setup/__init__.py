"""Setup tools: one command turns managed nodes into a Kubernetes cluster, and back.

`engine` runs stages with a journal, `answers` declares what a deployment is asked, `wizard` asks it at a terminal.
"""
