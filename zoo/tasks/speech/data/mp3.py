"""Frames of an MP3 file: how many there are, how many its header promises, and whether the last one is whole.

Decoders read a file that was cut without a word, and guess the length of one whose header does not say it.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import NamedTuple

_RATES = (44_100, 48_000, 32_000)
_KILOBITS = {
    1: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Kilobits a second of layer III by version of MPEG (ISO/IEC 11172-3 and 13818-3, tables of `bitrate_index`)."""
_HEADER = 4
_TAG_WITHIN = 64
"""The tag of a first frame stands within so many bytes, behind side information whose size depends on the channels."""


class Frames(NamedTuple):
    """What a walk over the frames has found.

    Args:
        there: Number of whole frames of sound.
        promised: Number that the first frame promises; None if it does not.
        samples: Samples in a frame.
        is_cut: Whether the file ends within a frame.
    """

    there: int
    promised: int | None
    samples: int
    is_cut: bool


class _Header(NamedTuple):
    bytes: int
    samples: int


def walk(path: Path) -> Frames | None:
    """Goes over an MP3 file from frame to frame; None if that is not possible.

    Cost: O(frames)
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at, size = _skip_tag(content), len(content)
        if (first := _read_header(content[at : at + _HEADER])) is None:
            return None
        promised = _read_promise(content[at : at + _TAG_WITHIN])
        there = 0 if promised is None else -1  # the frame with the promise has no sound
        while at + _HEADER <= size:
            header = _read_header(content[at : at + _HEADER])
            if header is None:  # tags at the end, or what the decoder has to judge
                is_tag = content[at : at + 3] in (b"TAG", b"APE", b"LYR", b"ID3")
                return Frames(there, promised, first.samples, is_cut=False) if is_tag else None
            at += header.bytes
            there += at <= size
        return Frames(there, promised, first.samples, at > size or content[at : at + 1] == b"\xff")


def _skip_tag(content: mmap.mmap) -> int:
    """Returns the place behind an ID3v2 tag at the start, whose size has seven bits in each byte (id3.org, 3.1)."""
    if content[:3] != b"ID3" or len(content) < 10:
        return 0
    size = 0
    for each in content[6:10]:
        size = size * 128 + each
    return 10 + size + (10 if content[5] & 0x10 else 0)


def _read_promise(frame: bytes) -> int | None:
    """Returns the number of frames in the tag of a first frame, as LAME and others write it."""
    for name in (b"Xing", b"Info"):
        at = frame.find(name)
        if at >= 0 and frame[at + 7] & 1:
            return int.from_bytes(frame[at + 8 : at + 12], "big")
    return None


def _read_header(header: bytes) -> _Header | None:
    """Returns the sizes of a frame of layer III; None if this is not one."""
    bits = int.from_bytes(header, "big")
    version, layer = bits >> 19 & 3, bits >> 17 & 3
    bitrate, rate, padding = bits >> 12 & 15, bits >> 10 & 3, bits >> 9 & 1
    if len(header) < _HEADER or bits >> 21 != 0x7FF or version == 1 or layer != 1 or bitrate in (0, 15) or rate == 3:
        return None
    of = 1 if version == 3 else 2  # 2.5 has the bit rates of 2
    hertz = _RATES[rate] // {3: 1, 2: 2, 0: 4}[version]
    return _Header((144 // of) * _KILOBITS[of][bitrate - 1] * 1000 // hertz + padding, 1152 // of)
