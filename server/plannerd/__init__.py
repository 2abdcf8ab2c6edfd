"""plannerd: a service that decides which agent runs next."""
