"""Who calls, and what connections are protected by: certificates, tokens, and the files that they come from."""
