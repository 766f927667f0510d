"""Encoders of pictures, and the interfaces of networks that read them."""
