"""Operators on strings, sequences and optionals, which cannot be inputs or outputs of a runnable network."""

from tests.zoo.specimen import Specimen

__all__ = ["SPECIMENS"]

_JOINED = "y = ConcatFromSequence<axis = 0>(s)"
_WORDS = 'keys_int64s = [0, 1], values_strings = ["no", "yes"], default_string = "never"'
_NUMBERS = 'keys_strings = ["no", "yes"], values_int64s = [0, 1], default_int64 = 2'

SPECIMENS: dict[str, Specimen] = {
    "SplitToSequence": Specimen(
        f"(float[6,4] x) => (float[6,4] y) {{ a = Relu(x) s = SplitToSequence<axis = 0>(a) {_JOINED} }}"
    ),
    "SplitToSequence/sizes": Specimen(
        f"""(float[6,4] x, float[2,4] t) => (float[6,4] y)
        {{ k = Shape(t) s = SplitToSequence<axis = 0>(x, k) {_JOINED} }}"""
    ),
    "ConcatFromSequence": Specimen(
        """(float[2,4] a, float[2,4] b) => (float[2,2,4] y)
        { s = SequenceConstruct(a, b) y = ConcatFromSequence<axis = 0, new_axis = 1>(s) }"""
    ),
    "SequenceConstruct": Specimen(
        f"(float[2,4] a, float[3,4] b) => (float[5,4] y) {{s = SequenceConstruct(a,b) {_JOINED}}}"
    ),
    "SequenceConstruct/beside_another_branch": Specimen(
        f"""(float[2,4] a, float[3,4] b) => (float[8,4] z)
        {{ s = SequenceConstruct(a, b) r = Relu(b) t = Sigmoid(r) {_JOINED} z = Concat<axis = 0>(y, t) }}"""
    ),
    "SequenceEmpty": Specimen(
        f"(float[2,4] a) => (float[2,4] y) {{ e = SequenceEmpty() s = SequenceInsert(e, a) {_JOINED} }}"
    ),
    "SequenceInsert": Specimen(
        f"""(float[2,4] a, float[2,4] b, int64 i) => (float[4,4] y)
        {{ r = SequenceConstruct(a) s = SequenceInsert(r, b, i) {_JOINED} }}"""
    ),
    "SequenceErase": Specimen(
        f"""(float[6,4] x, int64 i) => (float[5,4] y)
        {{ r = SplitToSequence<axis = 0>(x) s = SequenceErase(r, i) {_JOINED} }}"""
    ),
    "SequenceAt": Specimen(
        """(float[6,4] x, int64 i) => (float[1,4] y) { s = SplitToSequence<axis = 0>(x) y = SequenceAt(s, i) }"""
    ),
    "SequenceLength": Specimen(
        "(float[6,4] x) => (int64 y) { s = SplitToSequence<axis = 0>(x) y = SequenceLength(s) }"
    ),
    "Optional": Specimen("(float[2,4] x) => (float[2,4] y) { a = Relu(x) o = Optional(a) y = OptionalGetElement(o) }"),
    "OptionalGetElement": Specimen("(float[2,4] x) => (float[2,4] y) { o = Optional(x) y = OptionalGetElement(o) }"),
    "OptionalGetElement/sequence": Specimen(
        f"""(float[2,4] a, float[3,4] b) => (float[5,4] y)
        {{ r = SequenceConstruct(a, b) o = Optional(r) s = OptionalGetElement(o) {_JOINED} }}"""
    ),
    "OptionalHasElement": Specimen("(float[2,4] x) => (bool y) { o = Optional(x) y = OptionalHasElement(o) }"),
    "Loop/gathers_a_sequence": Specimen(
        f"""(int64 n, bool c, float[2,4] x) => (float[m,4] y)
        {{ e = SequenceEmpty()
          s = Loop (n, c, e) <body = g (int64 i, bool d, seq(float[2,4]) p) => (bool f, seq(float[2,4]) q)
                              {{ f = Identity(d) q = SequenceInsert(p, x) }}> {_JOINED} }}"""
    ),
    "ai.onnx.ml.CategoryMapper": Specimen(
        """(int64[9] x) => (int64[9] y)
        { s = ai.onnx.ml.CategoryMapper<cats_int64s = [0, 1], cats_strings = ["no", "yes"], default_string = "never">(x)
          y = ai.onnx.ml.CategoryMapper<cats_int64s = [0, 1], cats_strings = ["no", "yes"], default_int64 = 2>(s) }"""
    ),
    "ai.onnx.ml.LabelEncoder/words": Specimen(
        f"""(int64[9] x) => (int64[9] y)
        {{ s = ai.onnx.ml.LabelEncoder<{_WORDS}>(x) y = ai.onnx.ml.LabelEncoder<{_NUMBERS}>(s) }}"""
    ),
    "RegexFullMatch": Specimen(
        '(int64[9] x) => (bool[9] y) { s = Cast<to = 8>(x) y = RegexFullMatch<pattern = "[0-9]+">(s) }'
    ),
    "StringConcat": Specimen(
        "(int64[9] x) => (int64[9] y) { s = Cast<to = 8>(x) t = StringConcat(s, s) y = Cast<to = 7>(t) }"
    ),
    "StringNormalizer": Specimen(
        """(int64[9] x) => (int64[9] y) { s = Cast<to = 8>(x)
          t = StringNormalizer<case_change_action = "UPPER", is_case_sensitive = 1, locale = "C">(s)
          y = Cast<to = 7>(t) }"""
    ),
    "StringSplit": Specimen(
        """(int64[9] x) => (int64[9] y, bool z)
        { s = Cast<to = 8>(x) t, y = StringSplit(s) z = RegexFullMatch<pattern = "[0-9]+">(t) }"""
    ),
    "com.microsoft.Tokenizer": Specimen(
        f"""(int64[2,3] x) => (int64 y)
        {{ s = Cast<to = 8>(x)
          t = com.microsoft.Tokenizer<mark = 0, pad_value = "#", separators = ["1"], mincharnum = 1>(s)
          y = ai.onnx.ml.LabelEncoder<{_NUMBERS}>(t) }}"""
    ),
}
