"""The contracts of drivers, buses, stores and cores, and how plug-ins are found. Imported by both sides of each."""
