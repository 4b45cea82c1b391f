"""The `trimtab` command: its main group, its own commands and how every command prints and fails."""
