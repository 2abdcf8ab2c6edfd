"""Measurements that anyone can repeat: `make bench`. They print ratios, never absolute promises."""
