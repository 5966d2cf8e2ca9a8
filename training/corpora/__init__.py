"""Corpora that are made, not found: each model is a recipe that gives the same ONNX file wherever it is followed."""
