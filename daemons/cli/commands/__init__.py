"""The commands of `trimtab`, a file for each group. Imported by `daemons.cli.main` alone, when one is run."""
