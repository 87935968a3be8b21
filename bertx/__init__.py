"""Pretraining-objective ablations for BERT-family encoders in JAX."""

__version__ = '0.1.0'

# Part of every run's hash: raise it with any change that alters the numbers a run comes out with.
NUMERICS_VERSION = 5
