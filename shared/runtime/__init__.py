"""The imperative shell: the loop, threads, timers, start-up, systemd, logs, subprocesses. Imported by processes,
never by cores."""
