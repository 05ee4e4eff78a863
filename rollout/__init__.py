"""Playing episodes: loop, group, manager, engines."""
