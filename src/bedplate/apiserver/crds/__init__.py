"""CustomResourceDefinitions: `checks` and `schema_checks` of the definition, `definitions` that serves its kind.

`custom` and `validations` (CEL rules) are what a served version does with each of its objects.
"""
