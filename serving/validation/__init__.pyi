from .attributes import fault_of_attribute as fault_of_attribute
from .sequences import check_sequence as check_sequence
from .tensors import fault_of_data as fault_of_data
from .tensors import fault_of_type as fault_of_type
