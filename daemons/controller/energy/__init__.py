"""Domain: meters, prices and what a cycle costs. Imported by the core, requests and views."""
