"""Correctness checks before and after timing, and the faults that prove them."""
