"""The answers of a setup: one declaration, from which the file, its checks, its JSON Schema and the wizard are made.

kinds.py        what values there are: their checks, their text, their JSON Schema
maps.py         values that are mappings: operators, options of charts
fields.py       what a question is
declaration.py  every question: key, kind, help, default, screen
features.py     those about Kyverno, operators, users and GPUs
document.py     a YAML file to answers, and back, with every problem at its line
site.py         what a head knows that answers must fit: networks, nodes, clusters
fitting.py      prefilled values, and what does not fit the site
networks.py     ranges of addresses that overlap nothing
aliases.py      head nodes and the default category by alias
jsonschema.py   the JSON Schema
"""

from bedplate.setup.answers.document import Answers, load, save

__all__ = ["Answers", "load", "save"]
