"""Results to tables: statistics, comparisons, notes, LaTeX, and the published figures beside ours."""
