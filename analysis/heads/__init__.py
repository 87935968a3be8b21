"""What attention heads look at: weights, relations, importance, a viewer."""
