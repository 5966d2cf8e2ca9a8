"""Elementwise operators."""

from tests.zoo.specimen import Specimen

__all__ = ["SPECIMENS"]

_UNARY = [
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp",
    "Floor", "Gelu", "HardSigmoid", "LeakyRelu", "Log", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink",
    "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu",
    "com.microsoft.FastGelu", "com.microsoft.Gelu", "com.microsoft.QuickGelu", "com.microsoft.SampleOp",
    "com.microsoft.ScaledSiLU", "MemcpyFromHost", "MemcpyToHost",
]  # fmt: skip
_BINARY = ["Add", "Div", "Max", "Mean", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum", "com.microsoft.GatedAdd"]
_COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]
# Experimental operators of old opsets, which the runtime still executes.
_OLD = {
    "Affine": "alpha = 2.0, beta = 1.0",
    "ParametricSoftplus": "alpha = 2.0, beta = 1.0",
    "ScaledTanh": "alpha = 2.0, beta = 1.0",
    "Scale": "scale = 2.0",
}

SPECIMENS: dict[str, Specimen] = {
    **{name: Specimen(f"(float[3,4] x) => (float[3,4] y) {{ y = {name}(x) }}") for name in _UNARY},
    **{name: Specimen(f"(float[3,4] a, float[3,4] b) => (float[3,4] y) {{ y = {name}(a, b) }}") for name in _BINARY},
    **{name: Specimen(f"(float[3,4] a, float[4] b) => (bool[3,4] y) {{ y = {name}(a, b) }}") for name in _COMPARISONS},
    **{
        name: Specimen(f"(bool[3,4] a, bool[3,4] b) => (bool[3,4] y) {{ y = {name}(a, b) }}")
        for name in ("And", "Or", "Xor")
    },
    **{
        name: Specimen(f"(uint8[3,4] a, uint8[3,4] b) => (uint8[3,4] y) {{ y = {name}(a, b) }}")
        for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
    },
    **{
        name: Specimen(f"(float[3,4] x) => (float[3,4] y) {{ y = {name}<{attributes}>(x) }}", opset=7)
        for name, attributes in _OLD.items()
    },
    "com.microsoft.GatedAdd": Specimen(
        "(float[3,4] a, float[3,4] b, float[3,1] g) => (float[3,4] y) { y = com.microsoft.GatedAdd(a, b, g) }"
    ),
    "Sum/three": Specimen("(float[3,4] a, float[4] b, float c) => (float[3,4] y) { y = Sum(a, b, c) }"),
    "Max/one": Specimen("(float[3,4] a) => (float[3,4] y) { y = Max(a) }"),
    "Not": Specimen("(bool[3,4] x) => (bool[3,4] y) { y = Not(x) }"),
    "BitwiseNot": Specimen("(int16[3,4] x) => (int16[3,4] y) { y = BitwiseNot(x) }"),
    "BitShift": Specimen(
        '(uint8[3,4] a, uint8[3,4] b) => (uint8[3,4] y) { y = BitShift<direction = "LEFT">(a, b) }',
    ),
    "BitCast": Specimen("(float[3,4] x) => (int32[3,4] y) { y = BitCast<to = 6>(x) }", opset=26),
    "Cast": Specimen("(float[4,6] x) => (float16[4,6] y) { a = Cast<to = 10>(x) y = Add(a, a) }"),
    "Cast/bfloat16": Specimen("(float[4,6] x) => (float[4,6] y) { a = Cast<to = 16>(x) y = Cast<to = 1>(a) }"),
    "Cast/float8": Specimen("(float[4,6] x) => (float[4,6] y) { a = Cast<to = 17>(x) y = Cast<to = 1>(a) }"),
    "Cast/int4": Specimen("(float[4,6] x) => (float[4,6] y) { a = Cast<to = 22>(x) y = Cast<to = 1>(a) }"),
    "Identity": Specimen("(float[4] x) => (float[4] y) { a = Relu(x) y = Identity(a) }"),
    "Dropout": Specimen("(float[4] x) => (float[4] y) { a = Dropout(x) b = Identity(a) y = Relu(b) }"),
    "Dropout/ratio": Specimen("(float[9] x, float r) => (float[9] y) { y = Dropout(x, r) }"),
    "Dropout/training": Specimen(
        "(float[9] x, float r, bool t) => (float[9] y, bool[9] m) { y, m = Dropout(x, r, t) }"
    ),
    "Clip": Specimen("(float[9] x, float a, float b) => (float[9] y) { y = Clip(x, a, b) }"),
    "Clip/most_only": Specimen("(float[9] x, float b) => (float[9] y) { y = Clip(x, , b) }"),
    "Div/integers": Specimen("(int64[40] a, int64[40] b) => (int64[40] y) { y = Div(a, b) }"),
    "Mod": Specimen("(int32[40] a, int32[40] b) => (int32[40] y) { y = Mod(a, b) }"),
    "Pow/Log_Sqrt": Specimen(
        "(float[9] x, float[9] p) => (float[9] y) { a = Pow(x, p) b = Log(a) c = Sqrt(x) y = Add(b, c) }",
    ),
    "IsInf": Specimen("(float[9] x) => (bool[9] y) { y = IsInf(x) }"),
    "IsNaN": Specimen("(float[9] x) => (bool[9] y) { y = IsNaN(x) }"),
    "Where": Specimen("(bool[4,5] c, float[4,5] a, float[5] b) => (float[4,5] y) { y = Where(c, a, b) }"),
    "ImageScaler": Specimen(
        "(float[1,2,3,3] x) => (float[1,2,3,3] y) { y = ImageScaler<scale = 2.0, bias = [0.1, 0.2]>(x) }", opset=7
    ),
    "com.microsoft.BiasGelu": Specimen(
        "(float[3,4] x, float[4] b) => (float[3,4] y) { y = com.microsoft.BiasGelu(x, b) }"
    ),
    "com.microsoft.FastGelu/bias": Specimen(
        "(float[3,4] x, float[4] b) => (float[3,4] y) { y = com.microsoft.FastGelu(x, b) }"
    ),
    "com.microsoft.MurmurHash3": Specimen("(int32[9] x) => (uint32[9] y) { y = com.microsoft.MurmurHash3(x) }"),
}
