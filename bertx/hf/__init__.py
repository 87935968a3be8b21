"""Weights to and from Hugging Face folders: config.json, model.safetensors and the tokenizer.

`bertx/hf/names.py` is the one table of names that reading and writing follow. Neither torch nor transformers is needed.
"""

from bertx.hf.reading import About, read, read_about, read_tokenizer
from bertx.hf.tensors import WEIGHTS
from bertx.hf.writing import whole_folder, write

__all__ = ['WEIGHTS', 'About', 'read', 'read_about', 'read_tokenizer', 'whole_folder', 'write']
