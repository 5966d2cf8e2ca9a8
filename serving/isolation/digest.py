"""The format of a digest: the content hash by which the service knows an uploaded model."""

import re

__all__ = ["DIGEST"]

# Strict, because digests become file names.
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
