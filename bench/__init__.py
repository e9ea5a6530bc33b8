"""Figures beside their peers, in one run: `python -m bench --help`. Nothing of the package imports this."""
