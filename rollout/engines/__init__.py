"""Engines: what serves the policy for sampling."""
