"""Bundled environments, wrappers, adapters to other gyms."""
