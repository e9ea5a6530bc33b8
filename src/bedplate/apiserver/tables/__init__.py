"""`kubectl get`: `rendering` turns objects into a Table, `cells` has the columns by kind, `cell_values` one cell."""
