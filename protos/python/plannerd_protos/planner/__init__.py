"""Generated from plannerd's protos, do not edit: see scripts/generate in its repository."""
