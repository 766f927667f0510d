"""Kernels: the same mathematics, computed faster or with less memory."""
