"""Answering: from a model to an estimate, with no HTTP in it."""
