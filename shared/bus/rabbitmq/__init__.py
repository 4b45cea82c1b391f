"""RabbitMQ behind `shared.ports.bus.Bus`: `bus.RabbitConnection`. Its module `bus` alone imports pika; start-up imports
it."""
