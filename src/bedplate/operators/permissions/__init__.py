"""The permission manager: people on a cluster, their rights, and the rules that their pods follow.

    custom resource ─▶ objects ─▶ controller: namespace with its rules, then roles, then bindings
    namespace's rules ─▶ decision ◀─ pod      used by the webhook, by `bedplate can`, and by the tests of the policies

`rules` is what a namespace carries, `decision` decides about a pod, `policies` says the same in CEL.
"""
