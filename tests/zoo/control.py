"""Control flow operators, which contain subgraphs."""

from tests.zoo.specimen import Specimen

__all__ = ["SPECIMENS"]

SPECIMENS: dict[str, Specimen] = {
    "If": Specimen(
        """(bool c, float[4,6] x, float[6,6] w) => (float[4,6] y)
        { y = If (c) <then_branch = g1 () => (float[4,6] a) { a = MatMul(x, w) },
                      else_branch = g2 () => (float[4,6] b) { b = Relu(x) }> }""",
    ),
    "If/within_if": Specimen(
        """(bool c, bool d, float[4] x) => (float[4] y)
        { y = If (c) <then_branch = g1 () => (float[4] a)
                        { a = If (d) <then_branch = g3 () => (float[4] e) { e = Neg(x) },
                                      else_branch = g4 () => (float[4] f) { f = Abs(x) }> },
                      else_branch = g2 () => (float[4] b) { b = Relu(x) }> }""",
    ),
    "Loop": Specimen(
        """(int64 n, float[3] x, float[3] k) => (float[3] y, float[m,3] z)
        <bool c = {1}>
        { r = Relu(k)
          y, z = Loop (n, c, x) <body = g (int64 i, bool d, float[3] s) => (bool e, float[3] t, float[3] u)
                                 { e = Identity(d) t = Add(s, r) u = Neg(t) }> }""",
    ),
    "Scan": Specimen(
        """(float[3] x, float[5,3] k) => (float[3] y, float[5,3] z)
        { y, z = Scan <num_scan_inputs = 1, body = g (float[3] s, float[3] i) => (float[3] t, float[3] u)
                       { t = Add(s, i) u = Mul(t, x) }> (x, k) }""",
    ),
}
