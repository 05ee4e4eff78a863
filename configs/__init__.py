"""Hydra config groups: data only."""
