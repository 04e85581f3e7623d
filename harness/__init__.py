"""irr: one hash-blocked TSDF fusion in CUDA C++, Rust and Triton, measured alike; see README.md."""

__version__ = "0.1.0"
