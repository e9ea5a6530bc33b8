"""Provider `cloudlycke`: a demonstration cloud with canned answers, whose load balancers carry traffic in the lab."""
