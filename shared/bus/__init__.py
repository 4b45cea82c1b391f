"""The bus: its layout (`topology`), the in-process one (`memory`) and, on more than one machine, RabbitMQ."""
