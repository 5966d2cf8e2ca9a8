"""Operator instances of many sizes, in one module per kind of operator."""
