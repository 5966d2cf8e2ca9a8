"""Replaces what is unsafe in texts from untrusted models before answers, logs and terminals show them."""

import hashlib
import re

__all__ = ["clean_name", "clean_sentence", "is_clean"]

# Source files and functions that libraries name in their error messages.
_SOURCE = re.compile(r"/\S*(?:onnxruntime_src|site-packages)/\S*(?: virtual)?(?: \S*::\S*)*")

NAME_LENGTH = 200
SENTENCE_LENGTH = 1000


def is_clean(text: str, length: int) -> bool:
    """Returns whether `text` has at most `length` characters, each of them printable."""
    return len(text) <= length and text.isprintable()


def clean_name(name: str) -> str:
    """Returns `name` if it is printable and at most 200 characters long, else a short, printable replacement.

    Control characters, line breaks, bidirectional marks and unpaired surrogates become question marks. Eight digits of
    a hash of the name are appended, so that names that differ only in removed or replaced characters stay distinct.
    """
    if is_clean(name, NAME_LENGTH):
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{_printable(name[: NAME_LENGTH - 9])}~{digest}"


def clean_sentence(sentence: str) -> str:
    """Returns `sentence` without libraries' source files and functions, made printable and cut to 1000 characters."""
    sentence = _SOURCE.sub("its source", sentence)
    if is_clean(sentence, SENTENCE_LENGTH):
        return sentence
    cut = sentence if len(sentence) <= SENTENCE_LENGTH else f"{sentence[: SENTENCE_LENGTH - 3]}..."
    return _printable(cut)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
