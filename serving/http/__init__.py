"""The service over HTTP: a thin layer that parses, asks `costmodel.serving.service`, and answers."""
