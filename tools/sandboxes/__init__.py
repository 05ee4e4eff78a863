"""Backends that run untrusted code."""
