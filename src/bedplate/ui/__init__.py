"""Front ends of the head: the shell, the REST API and the page; all of them say the same things in different words."""
