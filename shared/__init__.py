"""What both ends of the bus must agree on: values, protocol, ports and policies' contract; and what every
process is made with. Imports nothing of ours."""
