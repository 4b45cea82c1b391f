"""The standard jobs of a node (d-factor.txt, section 4.2): asked for, run in processes of their own, and answered."""
