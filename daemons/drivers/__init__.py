"""What the shell of the controller calls: load balancers, power, notifiers, feeds of prices and measurements.
Imported by `daemons.service` and `trimtab doctor`."""
