"""What is computed: volumes, scenes, cells and the NumPy evaluation of the algorithm. NumPy only."""
