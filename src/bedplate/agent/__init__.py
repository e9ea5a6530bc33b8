"""The node agent: what the head decides becomes true on one machine, stays true, and is proven.

    link       the head: what should be, by revision with a long poll; what was done and measured
    loop       the program: recover, follow, and start the three beside it
    errands    what is to be done once: restarts, transfers of software images
    upkeep     drift is put right, checks are run
    news       what the head is to be told
    apply      the steps of `api.steps`, one after the other, each noted before it is done
    observe    what is there, compared with what should be (pure)
    state      what must survive: the held state, the step under way, what was there before
    files      files below a root folder: atomic, and never through somebody else's link
    services   systemd, or our own supervisor where PID 1 is something else
    packages   apt, dnf, zypper, or a local folder
    checks     health checks with values and remedies
    images     software images by rsync, over the agent's connection

It stands on `core`, `api` and `client` alone and carries none of the head's dependencies.
"""
