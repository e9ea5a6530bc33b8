"""The way of a request through the server, stage by stage: `handler` runs them in order.

`routes` (what is asked for), `credentials` (by whom), `permissions` (may they), `dispatch` with `payloads` (which verb
answers), `answers` (how it looks), `metrics` (how often).
"""
