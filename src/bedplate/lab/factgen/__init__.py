"""Making the tables of facts: `program/` is the Go part, `reduce` the pure part; `bedplate.lab.facts` runs both."""
