"""Fencing by programs of the fence-agents package, several methods in order, before the power driver's own fence. Used
by the controller's process and by the commands `trimtab doctor` and `trimtab nodes fence-status`."""

from __future__ import annotations

from daemons.drivers.fencing.agent import PowerState, Reading
from daemons.drivers.fencing.checks import check_fencing
from daemons.drivers.fencing.driver import FencingPower, with_fencing
from daemons.drivers.fencing.method import Method, make_methods

__all__ = ["FencingPower", "Method", "PowerState", "Reading", "check_fencing", "make_methods", "with_fencing"]
