"""The users at shells over one head that the tests of `cmsh` have, too."""

from tests.ui.cmsh.conftest import desk, other, site_head

__all__ = ["desk", "other", "site_head"]
