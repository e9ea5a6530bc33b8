"""The way of a request through the server, stage by stage: `handler` runs them in order.

`routes` (what is asked for), `access` (by whom, and may they), `dispatch` (which verb answers), `answers` (how it
looks).
"""
