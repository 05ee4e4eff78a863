"""Where programming tasks come from: generated families, HumanEval, a user's JSONL file."""
