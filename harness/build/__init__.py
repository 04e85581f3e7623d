"""Compilers to cubins and manifests, without a GPU."""
