"""What an entity is declared with: kinds of values, rows, submodes; and what is read from a declaration."""
