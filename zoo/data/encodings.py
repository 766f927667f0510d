"""Reads text files in other encodings as streams of UTF-8.

Bytes that are no text in the encoding become bytes that are none in UTF-8 either, so that readers of lines and rows
find them in their line, and can leave out this line alone.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple, get_args

from zoo.data.option_hints import format_option
from zoo.errors import DataError

Encoding = Literal[
    "utf-8",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "latin-1",
    "iso8859-2",
    "iso8859-15",
    "cp437",
    "cp850",
    "cp932",
    "cp1250",
    "cp1251",
    "cp1252",
    "cp1253",
    "cp1254",
    "cp1255",
    "cp1256",
    "cp1257",
    "koi8-r",
    "mac-roman",
    "big5",
    "gb18030",
    "shift_jis",
    "euc-jp",
    "euc-kr",
]
"""Encodings by Python's names. A byte order mark is no part of the text."""
ENCODINGS: Sequence[str] = get_args(Encoding)
UTF8: Encoding = "utf-8"
_BLOCK = 1 << 16
_MARK = "zoo-undecodable"


class Fault(NamedTuple):
    """The description of a bad record, and how to mend it."""

    what: str
    remedy: str = "Put a cell that has quotes inside quotes, and double them."


def transcode(file: IO[bytes], encoding: Encoding, path: Path) -> IO[bytes]:
    """Returns a stream of the same text in UTF-8.

    Raises:
        DataError: While reading: it does not begin as a text in this encoding does.
    """
    return file if encoding == UTF8 else io.BufferedReader(_TranscodedFile(file, encoding, path))


def find_decoding_fault(text: str, encoding: Encoding) -> Fault | None:
    """Returns what is wrong with a text that was decoded with `surrogateescape`, or None.

    Args:
        text: A line, or several.
        encoding: The encoding of its file.
    """
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        byte = ord(error.object[error.start]) - 0xDC00
        proposal: Encoding = "utf-16" if byte >= 0xFE and not text[: error.start].strip() else "cp1252"
        subject = f"byte 0x{byte:02x}" if encoding == UTF8 else "a byte"
        return Fault(
            f"{subject} is not {'UTF-8' if encoding == UTF8 else encoding} text", _suggest_encoding(encoding, proposal)
        )
    if "\0" in text:
        problem = "it has NUL characters, as UTF-16 has where no byte order mark names it"
        return Fault(problem, _suggest_encoding(encoding, "utf-16"))
    return None


def _suggest_encoding(encoding: Encoding, proposal: Encoding) -> str:
    if encoding != UTF8:
        return f"Mend it, or name the encoding that the file has by {format_option('encoding')}."
    return f"Save the file as UTF-8, or read it as it is: {format_option('encoding', proposal)}."


class _TranscodedFile(io.RawIOBase):
    """The text of a file in UTF-8."""

    def __init__(self, file: IO[bytes], encoding: Encoding, path: Path) -> None:
        self.file, self.encoding, self.path = file, encoding, path
        self.decoder = codecs.getincrementaldecoder(encoding)(errors=_MARK)
        self.left = b""
        self.is_read = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self.left and not self.is_read:
            block = self.file.read(_BLOCK)
            self.is_read = not block
            try:
                text = self.decoder.decode(block, final=not block)
            except UnicodeError as error:  # UTF-16 and UTF-32 without a byte order mark
                problem = f"{self.path}: the file is no {self.encoding} text ({error})"
                raise DataError(
                    f"{problem}. Name its encoding by {format_option('encoding')}, such as utf-16-le or cp1252."
                ) from None
            self.left = text.encode("utf-8", "surrogateescape")
        part, self.left = self.left[: len(buffer)], self.left[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self.file.close()
        super().close()


def _mark_undecodable(error: UnicodeError) -> tuple[str, int]:
    """Returns a character for bytes that cannot be decoded; `surrogateescape` encodes it as 0xff, which is no UTF-8."""
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", error.end


codecs.register_error(_MARK, _mark_undecodable)
