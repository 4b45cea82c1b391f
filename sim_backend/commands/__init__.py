"""The commands of `trimtab sim`, one file each: `name.py` holds a click command called `name`."""
