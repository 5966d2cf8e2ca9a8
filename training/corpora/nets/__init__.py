"""Architectures of the built corpora as torch modules, with random weights."""
