"""The stage engine that the setup tools share: stages in, a run with its journal, its log and its exit code out.

stage.py     what a stage is, and the context that it receives
order.py     which stages may start now; the plan as text (pure)
journal.py   what a run has done, on disk before and after each stage
lock.py      one run at a time
said.py      what stages said, beside the journal, for those who are not at the terminal
masking.py   secrets are stars in everything that is said
events.py    what happens in a run, as values
formats.py   those values as lines: console, JSON, remote execution runner (pure)
logfile.py   the log file
display.py   the live progress display of a terminal
choices.py   what to do after a critical error
run.py       executes, resumes, undoes
"""

from bedplate.setup.engine.journal import Journal, Notes
from bedplate.setup.engine.stage import Context, Log, Stage, StageFailed

__all__ = ["Context", "Journal", "Log", "Notes", "Stage", "StageFailed"]
