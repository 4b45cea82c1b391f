"""One module per group of pages; each has `ROUTES`, which `daemons/portal/app.py` collects."""
