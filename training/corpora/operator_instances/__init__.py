"""Random instances of ONNX operators, that is, operators with concrete sizes, in one module per kind of operator."""
