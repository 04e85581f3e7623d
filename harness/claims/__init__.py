"""The seeds' statements as predicates over archives; no GPU import."""
