"""How the model is held while it learns."""
