"""Stand-ins for every port, in virtual time: hypervisor, host, power, load balancer, store, journal. Imported by
loops and tests."""
