"""Stand-ins and simulated worlds: the fakes that tests and simulations run on."""
