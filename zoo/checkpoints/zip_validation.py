"""Finds the members of a checkpoint's zip archive, and refuses archives that two readers could read differently.

Readers disagree about unusual archives: where there are two central directories torch takes one and Python the other,
torch ignores the case of names, and a local header may contradict the directory. An archive is therefore accepted in
one form alone: member after member from the first byte on, without a gap, then the directory, then the end, and no
contradiction among them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MOST_MEMBERS = 100_000
_LARGEST_DIRECTORY = 1 << 24
_LONGEST_NAME = 512
_NAME = re.compile(r"\.?[a-z0-9_]+(\.[a-z0-9_]+)*(/[a-z0-9_]+)?", re.ASCII)
"""Names in lower case alone, so that no two differ by case."""
_UTF8, _DESCRIPTOR = 1 << 11, 1 << 3
_IN_EXTRA, _ZIP64, _PADDING = 0xFFFFFFFF, 0x0001, 0x4246

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")


class UnsafeFileError(Exception):
    """The file is refused; the message says why."""


class Member(NamedTuple):
    """A member of an archive, and where its bytes are. The archive's one folder is left out of the name."""

    name: str
    start: int
    size: int


def members(file: BinaryIO, length: int) -> dict[str, Member]:
    """The members of an archive of this length by name, found without reading them.

    Raises:
        UnsafeFileError: The file is not a zip archive in the form that torch writes.
    """
    count, start, stop = _directory(file, length)
    if count > MOST_MEMBERS or stop - start > _LARGEST_DIRECTORY:
        raise UnsafeFileError(f"the archive has {count:,} members, and {MOST_MEMBERS:,} are enough for any model")
    found: dict[str, Member] = {}
    roots: set[str] = set()
    place = 0
    for entry in _entries(_read(file, start, stop - start), count):
        if entry.place != place:
            raise UnsafeFileError("the members of the archive overlap, or something lies between them")
        begin = _check_header(file, entry)
        root, _, name = entry.name.partition("/")
        roots.add(root)
        if not root.isprintable() or "\\" in root or set(root) <= {"."} or not _NAME.fullmatch(name):
            raise UnsafeFileError(f"the archive holds {entry.name[:80]!r}, which is not a name of torch's")
        if name in found:
            raise UnsafeFileError(f"the archive holds {entry.name!r} twice")
        found[name] = Member(name, begin, entry.size)
        place = begin + entry.size + _check_descriptor(file, entry, begin + entry.size)
    if place != start or len(roots) != 1:
        raise UnsafeFileError("the archive is not as torch writes it: something else stands before its directory")
    return found


class _Entry(NamedTuple):
    """A member's entry in the central directory."""

    name: str
    encoded: bytes
    flags: int
    checksum: int
    size: int
    place: int


def _directory(file: BinaryIO, length: int) -> tuple[int, int, int]:
    """The number of entries of the central directory, its start and its end."""
    last = length - _END.size
    if last < 0:
        raise UnsafeFileError("the archive has no end; it may have been cut short")
    mark, disk, first_disk, here, count, size, start, comment = _END.unpack(_read(file, last, _END.size))
    if mark != b"PK\x05\x06" or comment:
        raise UnsafeFileError("the archive has no end, or something behind it; it may have been cut short")
    if disk or first_disk or here != count:
        raise UnsafeFileError("the archive is in several parts")
    stop = last
    if last >= _LOCATOR.size:
        mark, disk, at, disks = _LOCATOR.unpack(_read(file, last - _LOCATOR.size, _LOCATOR.size))
        if mark == b"PK\x06\x07":  # a reader may go by these figures or by those above: they have to be equal
            stop = last - _LOCATOR.size - _END_64.size
            if disk or disks > 1 or at != stop or stop < 0:
                raise UnsafeFileError("the archive has two ends that do not agree")
            end = _END_64.unpack(_read(file, stop, _END_64.size))
            mark, rest, (number, first_disk), figures = end[0], end[1], end[4:6], end[6:]
            said = (here, count, size, start)
            limits = (0xFFFF, 0xFFFF, _IN_EXTRA, _IN_EXTRA)
            agree = all(a in (b, most) for a, b, most in zip(said, figures, limits, strict=True))
            if mark != b"PK\x06\x06" or rest != _END_64.size - 12 or number or first_disk or not agree:
                raise UnsafeFileError("the archive has two ends that do not agree")
            here, count, size, start = figures
            if here != count:
                raise UnsafeFileError("the archive is in several parts")
    if start + size != stop or not count:
        raise UnsafeFileError("the archive has no directory, or more than one")
    return count, start, stop


def _entries(directory: bytes, count: int) -> Iterator[_Entry]:
    at = 0
    for _ in range(count):
        if at + _CENTRAL.size > len(directory):
            raise UnsafeFileError("the directory of the archive is cut short")
        fields = _CENTRAL.unpack_from(directory, at)
        mark, flags, method, checksum, packed, size = fields[0], fields[3], fields[4], *fields[7:10]
        name_length, extra_length, comment, disk, place = *fields[10:14], fields[16]
        if mark != b"PK\x01\x02" or comment or disk or name_length > _LONGEST_NAME:
            raise UnsafeFileError("the directory of the archive is not as torch writes it")
        encoded = directory[at + _CENTRAL.size : at + _CENTRAL.size + name_length]
        extra = directory[at + _CENTRAL.size + name_length :][:extra_length]
        at += _CENTRAL.size + name_length + extra_length
        if len(encoded) < name_length or len(extra) < extra_length:
            raise UnsafeFileError("the directory of the archive is cut short")
        try:
            name = encoded.decode("utf-8")
        except UnicodeDecodeError:
            raise UnsafeFileError("a name in the archive is not UTF-8") from None
        size, packed, place = _widen((size, packed, place), extra)
        if method or size != packed:
            raise UnsafeFileError(f"{name[:80]!r} is compressed ({size:,} bytes); torch never does that")
        if flags & ~(_UTF8 | _DESCRIPTOR):
            raise UnsafeFileError(f"{name[:80]!r} is encrypted, or stored in another way than torch's")
        yield _Entry(name, encoded, flags, checksum, size, place)
    if at != len(directory):
        raise UnsafeFileError("the directory of the archive is longer than its entries")


def _check_header(file: BinaryIO, entry: _Entry) -> int:
    """Checks that a member's local header agrees with its entry; returns where its bytes begin."""
    header = _read(file, entry.place, _LOCAL.size)
    mark, _, flags, method, _, _, checksum, packed, size, name_length, extra_length = _LOCAL.unpack(header)
    rest = _read(file, entry.place + _LOCAL.size, name_length + extra_length)
    size, packed = _widen((size, packed), rest[name_length:])
    is_later = bool(entry.flags & _DESCRIPTOR) and not (size or packed or checksum)
    same = is_later or (size == packed == entry.size and checksum == entry.checksum)
    if mark != b"PK\x03\x04" or flags != entry.flags or method or rest[:name_length] != entry.encoded or not same:
        raise UnsafeFileError(f"{entry.name[:80]!r} is described in two ways that do not agree")
    begin: int = entry.place + _LOCAL.size + name_length + extra_length
    return begin


def _check_descriptor(file: BinaryIO, entry: _Entry, at: int) -> int:
    """Checks the descriptor behind a member's bytes, which repeats their checksum and number; returns its length."""
    if not entry.flags & _DESCRIPTOR:
        return 0
    for form in ("<4s3I", "<4sI2Q"):
        expected = (b"PK\x07\x08", entry.checksum, entry.size, entry.size)
        length = struct.calcsize(form)
        if (form.endswith("Q") or entry.size < _IN_EXTRA) and _read(file, at, length) == struct.pack(form, *expected):
            return length
    raise UnsafeFileError(f"{entry.name[:80]!r} is described in two ways that do not agree")


def _widen(numbers: tuple[int, ...], extra: bytes) -> tuple[int, ...]:
    """The numbers of an entry, of which those that need more than 32 bits are taken from its extra field."""
    wide = b""
    while extra:
        if len(extra) < 4:
            raise UnsafeFileError("an entry of the archive is cut short")
        kind, length = struct.unpack_from("<2H", extra)
        if kind not in (_ZIP64, _PADDING) or len(extra) < 4 + length or (kind == _ZIP64 and wide):
            raise UnsafeFileError("an entry of the archive is not as torch writes it")
        wide = extra[4 : 4 + length] if kind == _ZIP64 else wide
        extra = extra[4 + length :]
    if len(wide) != 8 * numbers.count(_IN_EXTRA):
        raise UnsafeFileError("an entry of the archive is not as torch writes it")
    found = iter(struct.unpack(f"<{len(wide) // 8}Q", wide))
    return tuple(next(found) if number == _IN_EXTRA else number for number in numbers)


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    found = file.read(length)
    if len(found) != length:
        raise UnsafeFileError("the archive is cut short")
    return found
