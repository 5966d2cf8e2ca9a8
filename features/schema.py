"""The feature schema: names and order of the features of a regressor, with a version and a fingerprint."""

import hashlib
from dataclasses import dataclass

from costmodel.errors import ArtefactError

__all__ = ["FEATURE_GROUPS", "OPERATORS", "SCHEMA", "Schema"]

# Operators that have a one-hot feature of their own: first those of common networks, then the others that ONNX Runtime
# 1.31 executes on CPUs, so that what is learnt about one rare operator is not applied to another. Appending an operator
# makes a new schema version.
OPERATORS = (
    "Conv", "FusedConv", "ConvTranspose", "QLinearConv", "ConvInteger", "Gemm", "FusedGemm", "QGemm", "MatMul",
    "FusedMatMul", "QLinearMatMul", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulNBits",
    "LSTM", "GRU", "RNN", "Einsum", "Attention", "MultiHeadAttention", "GroupQueryAttention",
    "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LRN",
    "BatchNormalization", "InstanceNormalization", "LayerNormalization", "SkipLayerNormalization",
    "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "GroupNorm",
    "Softmax", "LogSoftmax", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Erf", "Tanh", "Sigmoid", "HardSwish",
    "HardSigmoid", "Relu", "LeakyRelu", "PRelu", "Elu", "Clip", "Softplus", "Exp", "Log", "Sqrt", "Pow", "Reciprocal",
    "Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Neg", "Abs", "Where", "Equal", "Less", "Greater", "Not", "And",
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ArgMax", "ArgMin", "CumSum",
    "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Transpose", "Concat", "Split", "Slice", "Pad", "Tile",
    "Expand", "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "OneHot", "Shape", "Range",
    "Cast", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearAdd", "QLinearConcat",
    "Resize", "Upsample", "GridSample", "DepthToSpace", "SpaceToDepth", "TopK", "NonZero", "NonMaxSuppression",
    "ReorderInput", "ReorderOutput", "Reorder", "If", "Loop", "Scan",
    "Acos", "Acosh", "Affine", "AffineGrid", "ArrayFeatureExtractor", "Asin", "Asinh", "Atan", "Atanh", "AttnLSTM",
    "BeamSearch", "BifurcationDetector", "Binarizer", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "BlackmanWindow", "BranchwiseRMSNorm", "CDist", "CastMap", "CategoryMapper", "CausalConvWithState",
    "Ceil", "Celu", "Col2Im", "Compress", "ConcatFromSequence", "ConstantOfShape", "ConvTransposeWithDynamicPads",
    "Cos", "Cosh", "Crop", "CropAndResize", "CumProd", "DFT", "DecoderMaskedMultiHeadAttention", "DeformConv", "Det",
    "DictVectorizer", "Dropout", "DynamicQuantizeLSTM", "DynamicSlice", "DynamicTimeWarping",
    "EmbedLayerNormalization", "EngramGate", "ExpandDims", "EyeLike", "FeatureVectorizer", "Floor", "GatedAdd",
    "GatedRMSNorm", "GatherBlockQuantized", "GlobalLpPool", "GreaterOrEqual", "GreedySearch", "HammingWindow",
    "HannWindow", "Hardmax", "HyperConnectionPostMix", "HyperConnectionPreMix", "ImageScaler", "Imputer", "Inverse",
    "IsInf", "IsNaN", "LabelEncoder", "LessOrEqual", "LinearAttention", "LinearAttentionGate", "LinearClassifier",
    "LinearRegressor", "LpNormalization", "LpPool", "MRotaryEmbedding", "MatMulBnb4", "MatMulFpQ4", "MatMulInteger16",
    "MaxRoiPool", "MaxUnpool", "MaxpoolWithMask", "Mean", "MeanVarianceNormalization", "MelWeightMatrix",
    "MemcpyFromHost", "MemcpyToHost", "MoE", "Mod", "Multinomial", "MurmurHash3", "NGramHashMapping",
    "NGramRepeatBlock", "NhwcMaxPool", "Normalizer", "OneHotEncoder", "Optional", "OptionalGetElement",
    "OptionalHasElement", "Or", "ParametricSoftplus", "QAttention", "QEmbedLayerNormalization", "QLinearAveragePool",
    "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere",
    "QMoE", "RMSNormalization", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "ReduceL1",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "ReduceSumSquare", "RegexFullMatch", "ReverseSequence",
    "RoiAlign", "RotaryEmbedding", "Round", "STFT", "SVMClassifier", "SVMRegressor", "SampleOp", "Sampling", "Scale",
    "ScaledSiLU", "ScaledTanh", "Scaler", "Scatter", "Selu", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
    "SequenceErase", "SequenceInsert", "SequenceLength", "Shrink", "Sign", "Sin", "Sinh", "Size", "Softsign",
    "SparseAttention", "SparseToDenseMatMul", "SplitToSequence", "StringConcat", "StringNormalizer", "StringSplit",
    "Tan", "TensorScatter", "TfIdfVectorizer", "ThresholdedRelu", "Tokenizer", "TransposeMatMul", "TreeEnsemble",
    "TreeEnsembleClassifier", "TreeEnsembleRegressor", "Trilu", "UnfoldTensor", "Unique", "VarlenNGramHashMapping",
    "WhisperBeamSearch", "WordConvEmbedding", "Xor", "ZipMap",
)  # fmt: skip

_WORK = (
    "log_bound_us", "log_multiply_flops", "log_other_flops", "log_copy_flops", "log_scalar_calls", "log_input_bytes",
    "log_weight_bytes", "log_output_bytes", "log_moved_bytes", "log_intensity", "memory_share",
)  # fmt: skip
_SHAPE = (
    "log_batch", "log_rows", "log_columns", "log_depth", "rows_waste", "columns_waste", "columns_tile_waste",
    "depth_waste", "rank", "log_in_channels", "log_out_channels", "log_in_positions", "log_out_positions",
    "log_out_width", "width_waste", "log_inner_axis", "inputs", "item_bytes", "floating", "blocked_input",
    "blocked_output", "since",
)  # fmt: skip
_WINDOW = (
    "log_kernel_area", "kernel_width", "stride", "dilation", "padding_share", "log_group", "depthwise", "pointwise",
    "activation", "fused_sum",
)  # fmt: skip
_LAYOUT = (
    "last_axis_kept", "log_inner_run", "log_axis_size", "log_other_operand", "other_operand_inner", "constant_operand",
    "interpolation", "log_scaled",
)  # fmt: skip
_KERNEL = (
    "transpose_path", "log_read_stride", "log_moved_axis", "log_crowding", "log_span", "reduction_path",
    "log_workspace", "spatial_rank", "log_row_bytes", "transposed_operands", "integer_path", "log_slowdown",
)  # fmt: skip
_SYSTEM = (
    "threads", "log_gemm_gflops", "log_memory_gbps", "layer_us", "vector_bits", "work_over_l1", "work_over_l2",
    "work_over_l3", "weights_over_l2", "footprint_over_l2", "footprint_over_l3", "lap_over_l2", "log_grain_per_thread",
    "log_threads_speedup", "log_threads_wait", "workspace_over_l2", "table_over_l2", "recurrent_over_l2",
    "column_over_l2",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a feature matrix.

    Attributes:
        version: Version number, raised when the meaning of a feature changes without its name changing.
        names: Name of each column.
    """

    version: int
    names: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Digest of the schema's version and names, stored with each trained regressor."""
        return hashlib.sha256(f"{self.version}:{','.join(self.names)}".encode()).hexdigest()[:16]

    def check(self, fingerprint: str, what: str) -> None:
        """Checks that an artefact, such as a regressor, was trained on this feature schema.

        Args:
            fingerprint: Fingerprint of the schema that the artefact was trained on.
            what: Name of the artefact, the subject of the error message.

        Raises:
            ArtefactError: The fingerprint is not that of this schema.
        """
        if fingerprint != self.fingerprint:
            raise ArtefactError(
                f"{what} was trained on feature schema {fingerprint} and this costmodel has {self.fingerprint}: "
                "train again with `costmodel train`"
            )


# Features by subject, for ablation studies that leave out one group at a time.
FEATURE_GROUPS = {
    "work": _WORK,
    "shape": _SHAPE,
    "window": _WINDOW,
    "layout": _LAYOUT,
    "kernel": _KERNEL,
    "system": _SYSTEM,
    "footprint": ("footprint_over_l2", "footprint_over_l3", "lap_over_l2"),
    "operator": (*(f"op_{name}" for name in OPERATORS), "op_other"),
}

SCHEMA = Schema(25, (*_WORK, *_SHAPE, *_WINDOW, *_LAYOUT, *_KERNEL, *_SYSTEM, *FEATURE_GROUPS["operator"]))
