"""A file for each kind of operator: how its instances are written, and at which sizes."""
