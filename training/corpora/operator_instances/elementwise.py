"""Random instances of elementwise operators."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Drawer, Sweep

__all__ = ["SWEEPS"]

_ACTIVATIONS = [
    "Erf", "Exp", "Gelu", "LeakyRelu", "Log", "Neg", "Relu", "Sigmoid", "Sqrt", "Tanh",
    "com.microsoft.Gelu", "com.microsoft.QuickGelu", "com.microsoft.FastGelu",
]  # fmt: skip
_USUAL = [
    "Abs", "Ceil", "Cos", "Elu", "Floor", "HardSigmoid", "Reciprocal", "Round", "Selu", "Sign", "Sin", "Softplus",
    "Softsign",
]  # fmt: skip
_SELDOM = [
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cosh", "Shrink", "Sinh", "Tan", "ThresholdedRelu",
    "com.microsoft.SampleOp", "com.microsoft.ScaledSiLU",
]  # fmt: skip
# Experimental operators of old opsets, which the runtime still executes.
_OLD = {
    "Affine": "<alpha = 2.0, beta = 1.0>",
    "ParametricSoftplus": "<alpha = 2.0, beta = 1.0>",
    "ScaledTanh": "<alpha = 2.0, beta = 1.0>",
    "Scale": "<scale = 2.0>",
}
_SLOW = 8 << 20


def _unary(name: str, dtype: str = "float", made: str = "") -> Drawer:
    attributes = "" if "<" not in name else name[name.index("<") :]
    operator = name.removesuffix(attributes)
    return lambda d: f"({dtype}[{d.shape}] x) => ({made or dtype} y) {{ y = {operator}{attributes}(x) }}"


def _spread(d: Draw, dtype: str) -> str:
    """Returns, as ONNX text, two inputs with different random shapes that an operator broadcasts to a common one."""
    return d.pick(
        f"{dtype}[{d.image}] a | {dtype}[{d.c},1,1] b",
        f"{dtype}[{d.image}] a, {dtype}[{d.n},{d.c},1,1] b",
        f"{dtype}[{d.tokens}] a | {dtype}[{d.h}] b",
        f"{dtype}[{d.tokens}] a, {dtype}[{d.n},{d.s},1] b",
        f"{dtype}[{d.scores}] a, {dtype}[{d.n},1,1,{d.s}] b",
        f"{dtype}[{d.scores}] a, {dtype}[1,{d.a},{d.s},{d.s}] b",
        f"{dtype}[{d.s},1] a, {dtype}[1,{d.s}] b",
        f"{dtype}[{d.n},{d.s},{d.h}] a | {dtype}[{d.s},{d.h}] b",
    )


def _binary(name: str, dtype: str = "float", made: str = "") -> tuple[Drawer, ...]:
    """Returns functions that draw instances of a binary operator: with equal shapes, broadcasting, or a scalar."""
    call = f"=> ({made or dtype} y) {{ y = {name}(a, b) }}"
    return (
        lambda d: f"({dtype}[{d.shape}] a, {dtype}[{d.shape}] b) {call}",
        lambda d: f"({_spread(d, dtype)}) {call}",
        lambda d: f"({dtype}[{d.shape}] a | {dtype}[1] b) {call}",
        lambda d: f"({_spread(d, dtype)}) {call}",
    )


def _integers(name: str) -> Drawer:
    # Integer tensors: positions, counts and shapes.
    return lambda d: f"(int64[{d.pick(d.length, d.size(1, 8))}] a, int64[1] b) => (int64 y) {{ y = {name}(a, b) }}"


def _alike(name: str, count: int) -> Drawer:
    """Returns a function that draws instances of an operator whose `count` inputs all have the same random shape."""
    names = "abc"[:count]
    return lambda d: (
        f"""({", ".join(f"float[{d.shape}] {one}" for one in names)}) => (float y)
        {{ y = {name}({", ".join(names)}) }}"""
    )


def _cast(made: str, number: int, dtype: str = "float") -> Drawer:
    return lambda d: f"({dtype}[{d.shape}] x) => ({made} y) {{ y = Cast<to = {number}>(x) }}"


SWEEPS: dict[str, Sweep] = {
    **{name: Sweep((_unary(name),), 10) for name in _ACTIVATIONS},
    **{name: Sweep((_unary(name),), 6, most_bytes=2 * _SLOW) for name in _USUAL},
    **{name: Sweep((_unary(name),), 3, most_bytes=_SLOW) for name in _SELDOM},
    **{name: Sweep((_unary(name + of),), 4, opset=7, most_bytes=_SLOW) for name, of in _OLD.items()},
    **{name: Sweep((*_binary(name), _integers(name)), 15) for name in ("Add", "Div", "Mul", "Sub")},
    **{name: Sweep(_binary(name), 8) for name in ("Max", "Min")},
    "Pow": Sweep(
        (
            *_binary("Pow"),
            lambda d: (
                f"(float[{d.shape}] a) => (float y) <float b = {{{d.pick('2.0', '3.0', '0.5')}}}> {{ y = Pow(a, b) }}"
            ),
        ),
        12,
        most_bytes=_SLOW,
    ),
    "PRelu": Sweep((lambda d: f"(float[{d.image}] a | float[{d.c},1,1] b) => (float y) {{ y = PRelu(a, b) }}",), 8),
    **{name: Sweep((_alike(name, 2), _alike(name, 3)), 6) for name in ("Sum", "Mean")},
    **{
        name: Sweep((*_binary(name, "float", "bool")[:3], *_binary(name, "int64", "bool")[:3]), 6)
        for name in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **{name: Sweep(_binary(name, "bool")[:2], 5) for name in ("And", "Or", "Xor")},
    **{
        name: Sweep((*_binary(name, "uint8")[:2], *_binary(name, "int32")[:1]), 4)
        for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
    },
    "Not": Sweep((_unary("Not", "bool"),), 6),
    "BitwiseNot": Sweep((_unary("BitwiseNot", "int16"), _unary("BitwiseNot", "int32")), 4),
    "BitShift": Sweep(
        (
            lambda d: (
                f"""(uint8[{d.shape}] a, uint8[{d.shape}] b) => (uint8 y)
                {{ y = BitShift<direction = "{d.pick("LEFT", "RIGHT")}">(a, b) }}"""
            ),
        ),
        4,
        most_bytes=_SLOW,
    ),
    "BitCast": Sweep((lambda d: f"(float[{d.shape}] x) => (int32 y) {{ y = BitCast<to = 6>(x) }}",), 4, opset=26),
    "Cast": Sweep(
        (
            _cast("int64", 7),
            _cast("int32", 6),
            _cast("bool", 9),
            _cast("float16", 10),
            _cast("double", 11),
            _cast("float", 1, "int64"),
            _cast("float", 1, "int32"),
            _cast("float", 1, "bool"),
            _cast("float", 1, "float16"),
            _cast("float", 1, "uint8"),
            _cast("int64", 7, "int32"),
            _cast("int32", 6, "int64"),
            _cast("int8", 3),
            _cast("uint8", 2),
        ),
        26,
        most_bytes=16 << 20,
    ),
    **{name: Sweep((_unary(name),), 3, most_bytes=_SLOW) for name in ("Identity", "MemcpyFromHost", "MemcpyToHost")},
    "Dropout": Sweep(
        (
            lambda d: f"(float[{d.shape}] x, float r) => (float y) {{ y = Dropout(x, r) }}",
            lambda d: (
                f"""(float[{d.shape}] x) => (float y, bool m) <float r = {{0.1}}, bool t = {{1}}>
                {{ y, m = Dropout(x, r, t) }}"""
            ),
        ),
        4,
        most_bytes=_SLOW,
    ),
    "Clip": Sweep(
        (
            lambda d: (
                f"(float[{d.shape}] x) => (float y) <float a = {{0.0}}, float b = {{6.0}}> {{ y = Clip(x, a, b) }}"
            ),
            lambda d: f"(float[{d.shape}] x) => (float y) <float a = {{0.001}}> {{ y = Clip(x, a) }}",
        ),
        12,
    ),
    "Mod": Sweep(
        (
            lambda d: f"(int64[{d.length}] a, int64[1] b) => (int64 y) {{ y = Mod(a, b) }}",
            lambda d: f"(int32[{d.table}] a) => (int32 y) <int32 b = {{7}}> {{ y = Mod(a, b) }}",
            lambda d: f"(float[{d.table}] a, float[1] b) => (float y) {{ y = Mod<fmod = 1>(a, b) }}",
        ),
        6,
    ),
    "IsInf": Sweep((_unary("IsInf", made="bool"),), 4),
    "IsNaN": Sweep((_unary("IsNaN", made="bool"),), 4),
    "Where": Sweep(
        (
            lambda d: (
                f"(bool[{d.shape}] c, float[{d.shape}] a, float[{d.shape}] b) => (float y) {{ y = Where(c, a, b) }}"
            ),
            lambda d: (
                f"(bool[{d.n},1,1,{d.s}] c, float[{d.scores}] a | float[1] b) => (float y) {{ y = Where(c, b, a) }}"
            ),
            lambda d: f"(bool[{d.s},{d.s}] c, float[{d.scores}] a | float[1] b) => (float y) {{ y = Where(c, a, b) }}",
            lambda d: f"(bool[{d.length}] c, int64[{d.length}] a, int64[1] b) => (int64 y) {{ y = Where(c, a, b) }}",
        ),
        12,
    ),
    "ImageScaler": Sweep(
        (
            lambda d: (
                f"""(float[1,3,{d.i},{d.i}] x) => (float y)
                {{ y = ImageScaler<scale = 0.5, bias = [0.1, 0.2, 0.3]>(x) }}"""
            ),
        ),
        4,
        opset=7,
    ),
    "com.microsoft.GatedAdd": Sweep(
        (
            lambda d: (
                f"""(float[{d.table}] a, float[{d.table}] b, float[{d.rows},1] g) => (float y)
                {{ y = com.microsoft.GatedAdd(a, b, g) }}"""
            ),
        ),
        4,
    ),
    "com.microsoft.BiasGelu": Sweep(
        (lambda d: f"(float[{d.tokens}] x | float[{d.h}] b) => (float y) {{ y = com.microsoft.BiasGelu(x, b) }}",), 10
    ),
    "com.microsoft.FastGelu/bias": Sweep(
        (lambda d: f"(float[{d.tokens}] x | float[{d.h}] b) => (float y) {{ y = com.microsoft.FastGelu(x, b) }}",), 6
    ),
    "com.microsoft.MurmurHash3": Sweep(
        (lambda d: f"(int32[{d.length}] x) => (uint32 y) {{ y = com.microsoft.MurmurHash3(x) }}",), 4
    ),
}
