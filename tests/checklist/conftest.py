"""The users at shells over one head that the tests of `cmsh` have, too; and the operator of kernels on a server."""

from tests.operators.jupyter.conftest import world
from tests.ui.cmsh.conftest import desk, other, site_head

__all__ = ["desk", "other", "site_head", "world"]
