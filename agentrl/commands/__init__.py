"""What can be typed after `agentrl`: one file for each command, each with `run(argv) -> exit code`."""
