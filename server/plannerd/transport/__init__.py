"""The gRPC server: listening, handlers, errors as statuses, health, reflection and shutdown."""
