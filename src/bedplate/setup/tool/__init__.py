"""The program cm-kubernetes-setup: its flags, and what each of its actions does.

flags.py       every flag, with its group and the actions that it belongs to
command.py     the command line: help, usage errors, which action is meant
heads.py       reaching the head, the state folder, where this runs
operations.py  deploy, remove, resume, undo: stages run by the engine
listings.py    versions and operators
people.py      from the flags of the user management to its request
"""
