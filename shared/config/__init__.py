"""How a TOML file becomes values, what the files of all daemons share, and the agent's file. Imported by shells,
never by cores."""
