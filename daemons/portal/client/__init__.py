"""The controller as the portal asks it, and what it answered, kept for all readers. Imported by the pages and the
application."""
