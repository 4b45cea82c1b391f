"""What people fill into forms or upload, bound to manifests and checked. Imported by the pages."""
