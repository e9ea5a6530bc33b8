"""The one way to start a program that works for a Kubernetes cluster.

A program is its options (`options`), its caches and controllers (an `assembly.Assembly`, which puts them into a
`runtime.Manager`) and its checks (`endpoints`). Everything else is the same for all and stands here:

    command line ─▶ options ─▶ process ─▶ assembly: clients, leadership ─▶ runtime.Manager.run
                    --help,    exit code                                   until a signal: stopping
                    problems

Modules that a program needs only once it runs are imported then: `--help` stays quick.
"""
