"""Downstream tasks: labelled data, how it is put to an encoder, heads, and metrics."""
