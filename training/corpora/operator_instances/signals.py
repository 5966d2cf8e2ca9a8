"""Random instances of audio and signal processing operators."""

from costmodel.training.corpora.operator_instances.draw import Draw
from costmodel.training.corpora.operator_instances.instance import Sweep

__all__ = ["SWEEPS"]


def _fourier(d: Draw) -> str:
    length = d.pick(2 ** d.size(4, 13), d.size(16, 600))
    return f"""(float[{d.n},{length},1] x) => (float y) {{ y = DFT<onesided = {d.pick(0, 1)}>(x) }}"""


def _fourier_of_planes(d: Draw) -> str:
    """Returns a transform of complex numbers along either axis of a plane, as FNet mixes tokens and channels."""
    rows, columns = (d.pick(2 ** d.size(4, 10), d.rounded(16, 768)) for _ in range(2))
    d.flops(1000, rows, columns)
    return f"""(float[1,{rows},{columns},2] x) => (float y) <int64 axis = {{{d.pick(1, 2)}}}>
        {{ y = DFT(x, , axis) }}"""


def _short_fourier(d: Draw) -> str:
    window = d.pick(256, 400, 512)
    return f"""(float[{d.pick(1, 1, 2)},{d.size(1000, 16000)},1] x, float[{window}] w) => (float y)
        <int64 n = {{{window}}}, int64 s = {{{window // d.pick(2, 4)}}}> {{ y = STFT(x, s, w, n) }}"""


def _mel(d: Draw) -> str:
    length = d.pick(256, 400, 512, 1024)
    return f"""(float l) => (float y)
        <int64 b = {{{d.pick(40, 64, 80, 128)}}}, int64 d = {{{length}}}, int64 r = {{16000}}, float u = {{8000.0}}>
        {{ y = MelWeightMatrix(b, d, r, l, u) }}"""


def _warping(d: Draw) -> str:
    return f"(float[{d.size(2, 200)},{d.size(2, 400)}] x) => (int32 y) {{ y = com.microsoft.DynamicTimeWarping(x) }}"


def _window(name: str) -> Sweep:
    def draw(d: Draw) -> str:
        return f"(int64 n) => (float y) {{ y = {name}<periodic = {d.pick(0, 1)}>(n) }}"

    return Sweep((draw,), 2)


SWEEPS: dict[str, Sweep] = {
    "DFT": Sweep((_fourier,), 6, most_bytes=1 << 20),
    "DFT/planes": Sweep((_fourier_of_planes,), 24, most_bytes=8 << 20),
    "STFT": Sweep((_short_fourier,), 5, most_bytes=1 << 20),
    "MelWeightMatrix": Sweep((_mel,), 4),
    "com.microsoft.DynamicTimeWarping": Sweep((_warping,), 4),
    **{name: _window(name) for name in ("HannWindow", "HammingWindow", "BlackmanWindow")},
}
