"""Writes Keras models as ONNX files by tf2onnx, for `others.py judge`.

    python -m venv TF && TF/bin/pip install tensorflow-cpu==2.15.1 tf2onnx==1.16.1 onnx==1.15.0 'numpy<2'
    TF/bin/python benchmarks/tensorflow_models.py FOLDER
    costmodel bench FOLDER --threads 1
    python benchmarks/others.py judge SYSTEM FOLDER

The networks of the corpora come from PyTorch. TensorFlow keeps channels last, so that tf2onnx puts a Transpose
around each convolution, which ONNX Runtime moves or removes; its recurrent layers become Loops or ONNX's own; weights
are random.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}

import tensorflow as tf
import tf2onnx

keras = tf.keras
layers = keras.layers

_VOCABULARY = 20_000
_CLASSES = 100
_OPSET = 17

# Functions that make a model, and the shape of its input with the batch.
Recipe = tuple[Callable[[], Any], tuple[int, ...], tf.DType]


def application(name: str, size: int) -> Recipe:
    """Returns one of Keras' own networks for square images."""
    make = lambda: getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3))  # noqa: E731
    return make, (1, size, size, 3), tf.float32


def of_tokens(body: Callable[[Any], Any], length: int) -> Recipe:
    """Returns a network on embedded tokens."""

    def make() -> Any:
        ids = keras.Input((length,), dtype="int32")
        return keras.Model(ids, body(layers.Embedding(_VOCABULARY, 128)(ids)))

    return make, (1, length), tf.int32


def of_numbers(body: Callable[[Any], Any], *shape: int, batch: int = 1) -> Recipe:
    """Returns a network on images, signals or tables."""

    def make() -> Any:
        numbers = keras.Input(shape)
        return keras.Model(numbers, body(numbers))

    return make, (batch, *shape), tf.float32


def bidirectional(x: Any) -> Any:
    """Classifies a text by two bidirectional LSTMs."""
    x = layers.Bidirectional(layers.LSTM(64, return_sequences=True))(x)
    return layers.Dense(1, activation="sigmoid")(layers.Bidirectional(layers.LSTM(32))(x))


def gru_language_model(x: Any) -> Any:
    """Predicts each next token by two GRUs."""
    for _ in range(2):
        x = layers.GRU(256, return_sequences=True)(x)
    return layers.Dense(2000, activation="softmax")(x)


def simple_recurrence(x: Any) -> Any:
    """Classifies a text by a plain recurrent layer, which becomes a Loop."""
    return layers.Dense(10)(layers.SimpleRNN(128)(x))


def text_convolutions(x: Any) -> Any:
    """Classifies a text by convolutions of three widths."""
    pools = [layers.GlobalMaxPooling1D()(layers.Conv1D(128, width, activation="relu")(x)) for width in (3, 4, 5)]
    return layers.Dense(5, activation="softmax")(layers.Concatenate()(pools))


def text_transformer(x: Any) -> Any:
    """Classifies a text by four encoder blocks."""
    for _ in range(4):
        x = layers.LayerNormalization(epsilon=1e-6)(x + layers.MultiHeadAttention(4, 32)(x, x))
        wide = layers.Dense(256, activation="relu")(x)
        x = layers.LayerNormalization(epsilon=1e-6)(x + layers.Dense(128)(wide))
    return layers.Dense(2, activation="softmax")(layers.GlobalAveragePooling1D()(x))


def unet(x: Any) -> Any:
    """Segments an image."""
    skips = []
    for filters in (16, 32, 64):
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(128, 3, padding="same", activation="relu")(x)
    for filters in (64, 32, 16):
        x = layers.Conv2DTranspose(filters, 2, strides=2, padding="same")(x)
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(layers.Concatenate()([x, skips.pop()]))
    return layers.Conv2D(2, 1, activation="softmax")(x)


def autoencoder(x: Any) -> Any:
    """Compresses an image and restores it."""
    for filters in (32, 16, 8):
        x = layers.Conv2D(filters, 3, padding="same", strides=2)(x)
        x = layers.LeakyReLU()(layers.BatchNormalization()(x))
    for filters in (8, 16, 32):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(layers.UpSampling2D()(x))
    return layers.Conv2D(3, 3, padding="same", activation="sigmoid")(x)


def espcn(x: Any) -> Any:
    """Enlarges an image by moving channels to pixels."""
    x = layers.Conv2D(64, 5, padding="same", activation="tanh")(x)
    x = layers.Conv2D(27, 3, padding="same")(layers.Conv2D(32, 3, padding="same", activation="tanh")(x))
    return layers.Lambda(lambda image: tf.nn.depth_to_space(image, 3))(x)


def separable_audio(x: Any) -> Any:
    """Recognises words by separable convolutions over a signal."""
    for filters in (64, 128, 128, 256):
        x = layers.BatchNormalization()(layers.SeparableConv1D(filters, 9, padding="same")(x))
        x = layers.MaxPooling1D(4)(layers.ReLU()(x))
    return layers.Dense(35, activation="softmax")(layers.GlobalAveragePooling1D()(x))


def resnet_of_series(x: Any) -> Any:
    """Classifies a time series."""
    for filters in (64, 128, 128):
        skip = layers.Conv1D(filters, 1, padding="same")(x)
        for width in (8, 5, 3):
            x = layers.BatchNormalization()(layers.Conv1D(filters, width, padding="same")(x))
            x = layers.ReLU()(x if width != 3 else layers.Add()([x, skip]))
    return layers.Dense(10)(layers.GlobalAveragePooling1D()(x))


def recurrent_convolutions(x: Any) -> Any:
    """Predicts the next image of a film: two ConvLSTMs, which become Loops."""
    x = layers.ConvLSTM2D(16, 3, padding="same", return_sequences=True)(x)
    x = layers.ConvLSTM2D(16, 3, padding="same")(x)
    return layers.Conv2D(1, 3, padding="same", activation="sigmoid")(x)


def volumes(x: Any) -> Any:
    """Classifies a volume by convolutions in three dimensions."""
    for filters in (16, 32, 64):
        x = layers.MaxPooling3D()(layers.Conv3D(filters, 3, padding="same", activation="relu")(x))
        x = layers.BatchNormalization()(x)
    return layers.Dense(2)(layers.Dense(128, activation="relu")(layers.GlobalAveragePooling3D()(x)))


def dcgan(x: Any) -> Any:
    """Generates digits by transposed convolutions."""
    x = layers.BatchNormalization()(layers.Dense(7 * 7 * 256, use_bias=False)(x))
    x = layers.Reshape((7, 7, 256))(layers.LeakyReLU()(x))
    for filters, stride in ((128, 1), (64, 2)):
        x = layers.Conv2DTranspose(filters, 5, strides=stride, padding="same", use_bias=False)(x)
        x = layers.LeakyReLU()(layers.BatchNormalization()(x))
    return layers.Conv2DTranspose(1, 5, strides=2, padding="same", activation="tanh")(x)


def _patches(x: Any) -> Any:
    return layers.Reshape((64, 128))(layers.Conv2D(128, 8, strides=8)(x))


def vision_transformer(x: Any) -> Any:
    """Classifies an image of 64 x 64 by attention between its patches."""
    x = _patches(x)
    for _ in range(6):
        normal = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(4, 32)(normal, normal)
        normal = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.Dense(128)(layers.Dense(512, activation="gelu")(normal))
    return layers.Dense(_CLASSES)(layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x)))


def mixer(x: Any) -> Any:
    """Classifies an image of 64 x 64 by perceptrons over patches and channels."""
    x = _patches(x)
    for _ in range(6):
        across = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        x = x + layers.Permute((2, 1))(layers.Dense(64)(layers.Dense(256, activation="gelu")(across)))
        x = x + layers.Dense(128)(layers.Dense(512, activation="gelu")(layers.LayerNormalization()(x)))
    return layers.Dense(_CLASSES)(layers.GlobalAveragePooling1D()(x))


def deeplab(x: Any) -> Any:
    """Segments an image by dilated convolutions on MobileNetV2, enlarged bilinearly."""
    base = keras.applications.MobileNetV2(weights=None, include_top=False, input_tensor=x)
    y = base.get_layer("block_13_expand_relu").output
    branches = [layers.Conv2D(64, 1, activation="relu")(y)]
    branches += [layers.Conv2D(64, 3, dilation_rate=rate, padding="same", activation="relu")(y) for rate in (6, 12)]
    pooled = layers.Conv2D(64, 1, activation="relu")(layers.GlobalAveragePooling2D(keepdims=True)(y))
    branches.append(layers.UpSampling2D((y.shape[1], y.shape[2]), interpolation="bilinear")(pooled))
    y = layers.Conv2D(64, 1, activation="relu")(layers.Concatenate()(branches))
    low = layers.Conv2D(24, 1, activation="relu")(base.get_layer("block_3_expand_relu").output)
    y = layers.Concatenate()([layers.UpSampling2D(4, interpolation="bilinear")(y), low])
    y = layers.Conv2D(21, 1)(layers.Conv2D(64, 3, padding="same", activation="relu")(y))
    return layers.UpSampling2D(4, interpolation="bilinear")(y)


def tabular(x: Any) -> Any:
    """Regresses on the rows of a table."""
    x = layers.BatchNormalization()(x)
    for width in (512, 256, 128):
        x = layers.Dropout(0.2)(layers.Dense(width, activation="relu")(x))
    return layers.Dense(1)(x)


def wavenet(x: Any) -> Any:
    """Predicts a signal by dilated causal convolutions with gates."""
    x = layers.Conv1D(32, 2, padding="causal")(x)
    skips = []
    for rate in (1, 2, 4, 8, 16, 32, 64):
        gates = [
            layers.Conv1D(32, 2, dilation_rate=rate, padding="causal", activation=kind)(x)
            for kind in ("tanh", "sigmoid")
        ]
        gated = layers.Multiply()(gates)
        skips.append(layers.Conv1D(32, 1)(gated))
        x = x + layers.Conv1D(32, 1)(gated)
    return layers.Conv1D(1, 1)(layers.ReLU()(layers.Add()(skips)))


def lenet(x: Any) -> Any:
    """Recognises digits."""
    for filters in (32, 64):
        x = layers.MaxPooling2D()(layers.Conv2D(filters, 3, activation="relu")(x))
    return layers.Dense(10, activation="softmax")(layers.Flatten()(x))


def group_norms(x: Any) -> Any:
    """Classifies an image by convolutions with group normalisation."""
    for filters in (32, 64, 128):
        x = layers.Conv2D(filters, 3, strides=2, padding="same")(x)
        x = layers.Activation("swish")(layers.GroupNormalization(8)(x))
    return layers.Dense(10)(layers.GlobalAveragePooling2D()(x))


RECIPES: dict[str, Recipe] = {
    **{
        f"k_{name.lower()}": application(name, size)
        for name, size in {
            "MobileNet": 224, "MobileNetV2": 224, "MobileNetV3Small": 224, "MobileNetV3Large": 224,
            "EfficientNetB0": 224, "EfficientNetV2B0": 224, "NASNetMobile": 224, "DenseNet121": 224, "Xception": 224,
            "InceptionV3": 224, "InceptionResNetV2": 160, "ResNet50": 224, "ResNet50V2": 224, "ResNetRS50": 160,
            "VGG16": 128,
        }.items()
    },
    "k_bilstm": of_tokens(bidirectional, 80),
    "k_gru_text": of_tokens(gru_language_model, 80),
    "k_simple_rnn": of_tokens(simple_recurrence, 80),
    "k_textcnn": of_tokens(text_convolutions, 200),
    "k_text_transformer": of_tokens(text_transformer, 128),
    "k_unet": of_numbers(unet, 128, 128, 3),
    "k_autoencoder": of_numbers(autoencoder, 128, 128, 3),
    "k_espcn": of_numbers(espcn, 128, 128, 3),
    "k_sepconv_audio": of_numbers(separable_audio, 8192, 1),
    "k_resnet1d": of_numbers(resnet_of_series, 512, 1, batch=4),
    "k_convlstm": of_numbers(recurrent_convolutions, 8, 32, 32, 1),
    "k_conv3d": of_numbers(volumes, 64, 64, 32, 1),
    "k_dcgan": of_numbers(dcgan, 100, batch=8),
    "k_vit": of_numbers(vision_transformer, 64, 64, 3, batch=4),
    "k_mixer": of_numbers(mixer, 64, 64, 3, batch=4),
    "k_deeplab": of_numbers(deeplab, 256, 256, 3),
    "k_tabular": of_numbers(tabular, 64, batch=256),
    "k_wavenet": of_numbers(wavenet, 4096, 1),
    "k_lenet": of_numbers(lenet, 28, 28, 1, batch=32),
    "k_group_norm": of_numbers(group_norms, 128, 128, 3),
}  # fmt: skip


def main(folder: Path) -> None:
    """Writes the models, each to a subfolder of its name; those that exist are left as they are."""
    tf.random.set_seed(0)
    for name, (make, shape, kind) in RECIPES.items():
        path = folder / name / f"{name}.onnx"
        if path.exists():
            continue
        keras.backend.clear_session()
        model = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        run = tf.function(lambda x, model=model: model(x, training=False))
        signature = (tf.TensorSpec(shape, kind, name="x"),)
        tf2onnx.convert.from_function(run, input_signature=signature, opset=_OPSET, output_path=str(path))
        print(name, flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
