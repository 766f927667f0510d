"""Recurrent networks over packed sequences, their kernels, and the cells of decoders."""
