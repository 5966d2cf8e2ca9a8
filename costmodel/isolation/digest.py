"""The form of a model's digest."""

import re

__all__ = ["DIGEST"]

# What may become the name of a file.
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
