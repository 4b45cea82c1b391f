"""The in-process bus across processes, in real time: a server on a Unix socket and the `Bus` that connects to it."""
