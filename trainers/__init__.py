"""From episodes to weights."""
