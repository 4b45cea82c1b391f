"""`trimtab demo`: a cluster of simulated hosts with the real daemons, as processes of one user on one machine."""
