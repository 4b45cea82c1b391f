"""The bus in virtual time, in process: RabbitMQ's semantics with scripted faults. Imported by loops and tests."""
