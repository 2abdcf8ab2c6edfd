"""What several test suites use: real servers, sample services, and errors as clients see them."""
