"""The web portal: pages for the provider, for owners of environments and for their users (docs/reference/portal.md)."""
