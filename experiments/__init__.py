"""What a person runs: `python -m experiments.<name>`."""
