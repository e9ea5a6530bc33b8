"""The wizard of cm-kubernetes-setup: the questions of `answers.declaration`, asked at a terminal.

steps.py   which screens and values there are, and what is wrong with them (pure)
app.py     the screens, with Textual
"""

from bedplate.setup.wizard.steps import Outcome

__all__ = ["Outcome"]
