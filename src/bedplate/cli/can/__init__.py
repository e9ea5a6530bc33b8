"""`bedplate can`: may this user run that pod, and who may do what where; answered from objects alone."""
