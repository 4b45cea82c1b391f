"""RabbitMQ behind `shared.ports.bus.Bus`: `bus.RabbitBus`; the only package that imports pika. Imported by start-
up."""
