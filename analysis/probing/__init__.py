"""What layers know: tasks, the vectors that they read, probes and their tables."""
