"""Between the wire and the domain: protobuf messages on one side, plain objects on the other."""
