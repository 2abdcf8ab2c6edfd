"""The gRPC services: decode, one call, encode. Protobuf classes stop here."""
