"""What the command `plannerd` can do, one module a command.

Each module adds its command to the parser; what runs it imports large libraries only then.
"""
