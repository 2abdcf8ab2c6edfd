"""The parts of the wire that more than one layer speaks: what a value looks like as a protobuf message."""
