"""Kernels that are faster on some kinds of CPU, and chosen there; `zoo.attention.cpu` switches them on and off."""
