"""The format of a model digest."""

import re

__all__ = ["DIGEST"]

# Strict, because digests become file names.
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
