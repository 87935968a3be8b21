"""Pretraining objectives, one file each; `config.objectives` names them."""
