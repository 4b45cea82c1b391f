"""The root helper: installs Debian packages that its own, root's, configuration allows, for the agent's user alone.

It runs as root for one request and ends. It imports the standard library and nothing else, so that what root runs can
be read in one sitting: `request` (what is asked), `policy` (what is allowed), `apt` (what is done), `__main__`.
"""
