"""Bundled tools and sandbox backends."""
