"""The fakes across processes: a server that hosts a fake cluster in real time, and the driver that agents load."""
