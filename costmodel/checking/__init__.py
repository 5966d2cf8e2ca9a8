"""Checks of layers that strangers describe, made once at the boundary so that no code behind it has to doubt them.

`check_sequence` accepts every sequence that the graph of a runtime gives, and refuses whatever the feature code could
not turn into finite numbers in a time that is linear in the size of the sequence. The check has these parts:

* `tensors`: a value has a known element type, a shape that a machine can hold, and data that fits both;
* `attributes`: an attribute is of one of eight kinds, with bounds that depend on its kind and its name;
* `operators`: an operator that ONNX defines has the inputs, outputs and attributes of its definition;
* `needs`: an operator has what the code that prices it computes with;
* `sequences`: values are made once, before they are read, and the parts above hold for every value and layer.
"""

from costmodel.checking.attributes import fault_of_attribute
from costmodel.checking.sequences import check_sequence
from costmodel.checking.tensors import fault_of_data, fault_of_type

__all__ = ["check_sequence", "fault_of_attribute", "fault_of_data", "fault_of_type"]
