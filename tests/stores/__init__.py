"""What every store must do, and what a shared one must."""
