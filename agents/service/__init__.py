"""The process `trimtab-agent`: `main` builds the drivers, runs the core and counts. Nothing imports it."""
