"""What the core, the store and the views agree on: settings, records, codes, calendars, how values are shown.
Pure; imported by all of `daemons`."""
