"""The life of an invocation: positions, the step as a transaction, execution states, stores."""
