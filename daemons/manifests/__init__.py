"""Files that users write (jobs, web applications, loads, agreements), read and checked. Imported by the command
and the portal."""
