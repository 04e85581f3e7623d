"""Schema, fingerprint, write, verify, compare; no GPU import."""
