"""The tests: one package, so that no package called `tests` in an environment takes its place."""
