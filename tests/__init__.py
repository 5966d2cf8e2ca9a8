"""The tests as one package, so that no installed package called `tests` is imported instead."""
