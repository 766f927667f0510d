"""Recurrent decoders with attention, which know nothing of what their source is made of."""
