"""Decision models: questions, answers, and the providers that answer them."""
