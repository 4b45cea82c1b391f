"""What the store keeps, a file for each domain. Pure; imported by the controller, the store and reports."""
