"""What both ends of the bus must agree on: values, messages, ports and errors. Imports nothing of ours."""
