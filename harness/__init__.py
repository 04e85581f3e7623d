"""irr: one hash-blocked TSDF fusion in CUDA C++, Rust and Triton, measured alike; see README.md."""
