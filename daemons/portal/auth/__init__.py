"""Accounts, passwords, second factors, sessions, and what wrong tries cost. Imported by the pages and the
application."""
