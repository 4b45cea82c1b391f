"""The bus on real machines: RabbitMQ, what a broker must hold. `sim_backend.bus` has the one in process."""
