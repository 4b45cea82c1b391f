"""The HTTP server with its bounds: middleware, limits by address. Imported by the application and `main`."""
