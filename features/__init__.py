"""From a sequence and a system to numbers: the same functions for training and for serving."""
