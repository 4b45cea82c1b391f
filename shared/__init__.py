"""Definitions on which both ends of the bus must agree (values, protocol, ports, the policies' contract), and the basis
of every process. Imports no other Trimtab package."""
