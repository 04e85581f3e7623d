"""The GPU through CuPy and NVML, and the host launcher."""
