"""Corpora, data sets, regressors, their evaluation, tracking and artefacts."""
