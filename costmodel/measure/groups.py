"""Groups: layer sequences that are loaded together and timed in turn."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from costmodel.ir.footprint import weight_bytes
from costmodel.ir.sequence import LayerSequence
from costmodel.onnx_io.model import Model
from costmodel.systems.host import Host

__all__ = [
    "CORE_SHARE",
    "DEFAULT_L3_BYTES",
    "Group",
    "evicted_bytes",
    "fits_in_core",
    "grouped",
    "groups_of_samples",
    "memory_bound_bytes",
    "warm_bytes",
]

_MOST_LOADED = 256
_MOST_BYTES = 2 << 30
# Limits on the samples of a group: at most this many for each layer of their model, so that the layers remain their
# context, and about as many bytes of weights as the model has, because networks that are loaded together share the
# caches. The other two constants are the lowest values of these limits, for models with few layers or few weights.
_SAMPLES_PER_LAYER = 2
_LOWEST_SAMPLE_LIMIT = 16
_LOWEST_BYTE_LIMIT = 16 << 20
# Assumed where the host does not report its level 3 cache: a typical lower limit for servers.
DEFAULT_L3_BYTES = 32 << 20
# Share of a core's own cache that the weights of a model may take if everything else it needs is to stay there as well.
CORE_SHARE = 0.5
_L3_MULTIPLE = 2  # weights of this many times the level 3 cache all come from main memory


@dataclass(frozen=True, slots=True)
class Group:
    """Layer sequences that are timed in turn: those of one model, or sequences that belong to no model.

    The sequences of a model run in each other's context, as in the model: all of them are timed as soon as one of them
    is to be measured.

    Attributes:
        label: Name of the group in progress messages: the name of the model or, without a model, the operator types of
            the first sequence.
        sequences: Layer sequences in the order of their model.
        whole: The whole model as one sequence, to be timed end to end in the same passes; None if it is not timed.
        model: The model that is run to time `whole`; if None, a runnable network with synthetic weights is run instead.
        footprint_bytes: Size of the weights that the whole model reads; None if there is no model, in which case the
            caches are assumed to be cold.
        context_only: Signatures of sequences that run only as context for samples. Their times are not kept: samples
            run between these sequences, and may be larger than the model from which they were derived, so that the
            sequences find other data in the caches than inside the model.
    """

    label: str
    sequences: tuple[LayerSequence, ...]
    whole: LayerSequence | None = None
    model: Model | None = None
    footprint_bytes: int | None = None
    context_only: Set[str] = frozenset()

    @property
    def members(self) -> tuple[LayerSequence, ...]:
        """All sequences, that of the whole model last."""
        return self.sequences if self.whole is None else (*self.sequences, self.whole)


def grouped(
    sequences: Iterable[LayerSequence], *, most_loaded: int = _MOST_LOADED, most_bytes: int = _MOST_BYTES
) -> list[Group]:
    """Returns groups without a model that together hold the sequences, each group small enough to be loaded at once.

    Args:
        sequences: Sequences to group; their order is kept.
        most_loaded: Maximum number of sequences in a group.
        most_bytes: Maximum size of the weights, in bytes, in a group of more than one sequence.
    """
    parts: list[list[LayerSequence]] = []
    nbytes = 0
    for sequence in sequences:
        weights = weight_bytes(sequence)
        if not parts or len(parts[-1]) == most_loaded or nbytes + weights > most_bytes:
            parts.append([])
            nbytes = 0
        parts[-1].append(sequence)
        nbytes += weights
    return [Group(part[0].kind, tuple(part)) for part in parts]


def groups_of_samples(
    samples: Mapping[str, tuple[LayerSequence, LayerSequence]], models: Iterable[Group]
) -> list[Group]:
    """Returns groups in which each sample is timed in the context of its origin, the sequence that it was made from.

    In such a group each sequence of a model is followed by the samples that were made from it.

    Args:
        samples: Pairs of a sample and its origin, by the sample's signature.
        models: Groups of the models that may contain the origins; samples whose origin is in none of them are returned
            in groups without a model.
    """
    groups: list[Group] = []
    remaining = dict(samples)
    for group in models:
        unique = {sequence.signature: sequence for sequence in group.sequences}
        of_model = {s: remaining.pop(s) for s in list(remaining) if remaining[s][1].signature in unique}
        portions = grouped(
            (sample for sample, _ in of_model.values()),
            most_loaded=max(_LOWEST_SAMPLE_LIMIT, _SAMPLES_PER_LAYER * len(unique)),
            most_bytes=max(_LOWEST_BYTE_LIMIT, group.footprint_bytes or 0),
        )
        for portion in portions:
            of_origin: dict[str, list[LayerSequence]] = {}
            for sample in portion.sequences:
                of_origin.setdefault(of_model[sample.signature][1].signature, []).append(sample)
            ordered = [s for origin, layer in unique.items() for s in (layer, *of_origin.get(origin, ()))]
            groups.append(replace(group, sequences=tuple(ordered), whole=None, context_only=unique.keys()))
    return groups + grouped(sample for sample, _ in remaining.values())


def memory_bound_bytes(host: Host | None) -> int:
    """Returns the size of a model's weights, in bytes, from which on every run reads all of them from main memory.

    It is twice the level 3 cache of `host`, or of a typical server if the size of that cache is unknown.
    """
    return _L3_MULTIPLE * ((host.l3_bytes if host else 0) or DEFAULT_L3_BYTES)


def fits_in_core(footprint_bytes: int | None, host: Host | None) -> bool:
    """Returns whether a model is so small that a core's own cache (level 2) keeps all it needs from run to run.

    Args:
        footprint_bytes: Size of the weights that the model reads; None if there is no model.
        host: Host with that cache; None if it is unknown.
    """
    # What reads no weights at all is no network, but a collection of operators.
    return 0 < (footprint_bytes or 0) <= warm_bytes(host)


def warm_bytes(host: Host | None) -> float:
    """Returns the size of a model's weights, in bytes, up to which its layers are timed warm; 0 for an unknown host."""
    return CORE_SHARE * (host.l2_bytes if host else 0)


def evicted_bytes(footprint_bytes: int | None, loaded_bytes: int, host: Host | None) -> int:
    """Returns how many more bytes each lap is to read, so that it evicts as much from the caches as a run of the model.

    Args:
        footprint_bytes: Size of the weights that the model reads; None if there is no model, in which case the caches
            are assumed to be cold.
        loaded_bytes: Size of the weights that the sequences of the lap read.
        host: Host whose caches are evicted; None if it is unknown.
    """
    enough = memory_bound_bytes(host)
    read_in_model = enough if footprint_bytes is None else min(footprint_bytes, enough)
    return max(0, read_in_model - loaded_bytes)
