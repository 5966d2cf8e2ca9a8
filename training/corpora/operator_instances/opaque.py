"""Random instances of operators on strings, sequences and optionals, in graphs whose inputs and outputs are tensors."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["SWEEPS"]

_JOINED = "y = ConcatFromSequence<axis = 0>(s)"

# X stands for the shape of a table, N for a number of words.
_TEXTS = {
    "SplitToSequence": f"(float[X] x) => (float y) {{ s = SplitToSequence<axis = 0>(x) {_JOINED} }}",
    "ConcatFromSequence": """(float[X] a, float[X] b) => (float y)
        { s = SequenceConstruct(a, b) y = ConcatFromSequence<axis = 0, new_axis = 1>(s) }""",
    "SequenceConstruct": f"(float[X] a, float[X] b) => (float y) {{ s = SequenceConstruct(a, b) {_JOINED} }}",
    "SequenceEmpty": f"(float[X] a) => (float y) {{ e = SequenceEmpty() s = SequenceInsert(e, a) {_JOINED} }}",
    "SequenceInsert": f"""(float[X] a, float[X] b, int64 i) => (float y)
        {{ r = SequenceConstruct(a) s = SequenceInsert(r, b, i) {_JOINED} }}""",
    "SequenceErase": f"""(float[X] a, float[X] b, int64 i) => (float y)
        {{ r = SequenceConstruct(a, b) s = SequenceErase(r, i) {_JOINED} }}""",
    "SequenceAt": """(float[X] a, float[X] b, int64 i) => (float y)
        { s = SequenceConstruct(a, b) y = SequenceAt(s, i) }""",
    "SequenceLength": "(float[X] x) => (int64 y) { s = SplitToSequence<axis = 0>(x) y = SequenceLength(s) }",
    "Optional": "(float[X] x) => (float y) { o = Optional(x) y = OptionalGetElement(o) }",
    "OptionalGetElement": f"""(float[X] a, float[X] b) => (float y)
        {{ r = SequenceConstruct(a, b) o = Optional(r) s = OptionalGetElement(o) {_JOINED} }}""",
    "OptionalHasElement": "(float[X] x) => (bool y) { o = Optional(x) y = OptionalHasElement(o) }",
    "ai.onnx.ml.CategoryMapper": """(int64[N] x) => (int64 y)
        { s = ai.onnx.ml.CategoryMapper<cats_int64s = [0, 1], cats_strings = ["no", "yes"], default_string = "never">(x)
          y = ai.onnx.ml.CategoryMapper<cats_int64s = [0, 1], cats_strings = ["no", "yes"], default_int64 = 2>(s) }""",
    "RegexFullMatch": '(int64[N] x) => (bool y) { s = Cast<to = 8>(x) y = RegexFullMatch<pattern = "[0-9]+">(s) }',
    "StringConcat": "(int64[N] x) => (int64 y) { s = Cast<to = 8>(x) t = StringConcat(s, s) y = Cast<to = 7>(t) }",
    "StringNormalizer": """(int64[N] x) => (int64 y) { s = Cast<to = 8>(x)
        t = StringNormalizer<case_change_action = "UPPER", is_case_sensitive = 1, locale = "C">(s)
        y = Cast<to = 7>(t) }""",
    "StringSplit": """(int64[N] x) => (int64 y, bool z)
        { s = Cast<to = 8>(x) t, y = StringSplit(s) z = RegexFullMatch<pattern = "[0-9]+">(t) }""",
    "com.microsoft.Tokenizer": """(int64[N] x) => (int64 y)
        { s = Cast<to = 8>(x)
          t = com.microsoft.Tokenizer<mark = 0, pad_value = "#", separators = ["1"], mincharnum = 1>(s)
          y = Shape(t) }""",
}


def _sized(text: str) -> Drawer:
    def draw(d: Draw) -> str:
        table = f"{d.size(1, 64)},{d.cols}"
        return text.replace("[X]", f"[{table}]").replace("[N]", f"[{d.size(1, 1000)}]")

    return draw


SWEEPS: dict[str, Sweep] = {
    name: Sweep((_sized(text),), 1 if name == "SequenceEmpty" else 3) for name, text in _TEXTS.items()
}
