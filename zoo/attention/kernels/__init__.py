"""Kernels: implementations of the same formulas that are faster or use less memory."""
