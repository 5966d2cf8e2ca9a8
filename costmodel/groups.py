"""Groups: what is loaded together and takes turns while it is timed."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from costmodel.host import Host
from costmodel.model import Model
from costmodel.network import weight_indices
from costmodel.sequence import LayerSequence

__all__ = ["Group", "among_their_origins", "cached_bytes", "grouped", "read_bytes", "swept_bytes", "weight_bytes"]

_MOST_LOADED = 256
_MOST_BYTES = 2 << 30
# Samples that are timed together, at most: so many for each layer of their model, which are their surroundings, unless
# it has few; and not many more weights than it, because what is loaded together shares the caches.
_SAMPLES_A_LAYER = 2
_FEWEST_SAMPLES = 16
_LEAST_FOOTPRINT_BYTES = 16 << 20
# Where the host does not say: what a server's cores share at least.
_USUAL_L3_BYTES = 32 << 20
_CACHES = 2  # weights that fill the last cache this often come from memory, all of them
# Inputs that are looked up.
_TABLES = {
    "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "GatherBlockQuantized": (0,),
    "EmbedLayerNormalization": (2, 3, 4),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """The sequences of a model, or some of no model in particular.

    Those of a model are each other's surroundings: all take turns as soon as one of them is to be measured.

    Attributes:
        label: What to call it while it is measured; the name of the model.
        sequences: In the order of their model.
        whole: The model as one sequence, to be timed end to end in the same turns; None where it is not wanted.
        model: That model; without it the sequence that it is is timed, with weights made for it.
        footprint_bytes: Weights that the whole model reads; None where there is no model, and caches are taken as cold.
        company: Signatures of sequences that are there as surroundings only, whose times are not kept: among samples,
            which may be larger than all of their model, they do not meet the caches that they meet in it.
    """

    label: str
    sequences: tuple[LayerSequence, ...]
    whole: LayerSequence | None = None
    model: Model | None = None
    footprint_bytes: int | None = None
    company: Set[str] = frozenset()


def grouped(
    sequences: Iterable[LayerSequence], *, most_loaded: int = _MOST_LOADED, most_bytes: int = _MOST_BYTES
) -> list[Group]:
    """Groups of sequences that are of no model in particular, each small enough to be loaded at once.

    Args:
        sequences: In their order.
        most_loaded: Sequences in a group.
        most_bytes: Weights in a group that has more than one sequence.
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


def among_their_origins(
    samples: Mapping[str, tuple[LayerSequence, LayerSequence]], models: Iterable[Group]
) -> list[Group]:
    """Groups of samples, each behind the layer that it was made from: they meet what that meets.

    Args:
        samples: Each with its origin.
        models: Where the origins may be found; samples around others are in groups of no model.
    """
    found: list[Group] = []
    left = dict(samples)
    for group in models:
        unique = {sequence.signature: sequence for sequence in group.sequences}
        mine = {s: left.pop(s) for s in list(left) if left[s][1].signature in unique}
        portions = grouped(
            (sample for sample, _ in mine.values()),
            most_loaded=max(_FEWEST_SAMPLES, _SAMPLES_A_LAYER * len(unique)),
            most_bytes=max(_LEAST_FOOTPRINT_BYTES, group.footprint_bytes or 0),
        )
        for portion in portions:
            of_origin: dict[str, list[LayerSequence]] = {}
            for sample in portion.sequences:
                of_origin.setdefault(mine[sample.signature][1].signature, []).append(sample)
            among = [s for origin, layer in unique.items() for s in (layer, *of_origin.get(origin, ()))]
            found.append(replace(group, sequences=tuple(among), whole=None, company=unique.keys()))
    return found + grouped(sample for sample, _ in left.values())


def weight_bytes(sequence: LayerSequence) -> int:
    """Bytes of the weights of a sequence."""
    return sum(sequence.values[index].type.nbytes for index in weight_indices(sequence))


def read_bytes(sequence: LayerSequence) -> int:
    """Bytes of its weights that a run reads: all of them, but of a table that is looked up only what is found there."""
    weights = weight_indices(sequence)
    if not weights:
        return 0
    found = {
        layer.inputs[slot]: sum(sequence.values[index].type.nbytes for index in layer.outputs if index >= 0)
        for layer in sequence.layers
        for slot in _TABLES.get(layer.op_type, ())
    }
    sizes = {index: sequence.values[index].type.nbytes for index in weights}
    return sum(min(nbytes, found.get(index, nbytes)) for index, nbytes in sizes.items())


def cached_bytes(host: Host | None) -> int:
    """Weights that are so many that all of them come from memory; more make no difference."""
    return _CACHES * ((host.l3_bytes if host else 0) or _USUAL_L3_BYTES)


def swept_bytes(footprint_bytes: int | None, loaded_bytes: int, host: Host | None) -> int:
    """What has to be read in each circle, so that the weights in it lie as far away as they do in the model.

    Args:
        footprint_bytes: Weights that the model reads; None where there is none, and caches are taken as cold.
        loaded_bytes: Weights that the sequences read which take turns.
        host: Whose caches they are.
    """
    caches = cached_bytes(host)
    wanted = caches if footprint_bytes is None else min(footprint_bytes, caches)
    return max(0, wanted - loaded_bytes)
