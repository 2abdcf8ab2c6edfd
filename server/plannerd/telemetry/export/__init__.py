"""OpenTelemetry: what is exported where, by the environment's OTEL_ variables. Loaded only when it is switched on."""
