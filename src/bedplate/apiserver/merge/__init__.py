"""How a change meets the object it changes: patches, server-side apply, managedFields.

`patches` (JSON patch, merge patch), `strategic`, and server-side apply: `apply` over `managed` (who owns which
field), `fieldset` (sets of field paths), `typedvalue` and `typedmerge` (values read by their type).
"""
