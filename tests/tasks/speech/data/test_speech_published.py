"""Published sets of recordings: generated files of their formats, and FSDD itself where it is."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from zoo.data.tarballs import extract_folder
from zoo.errors import ConfigError, DataError, OfflineError
from zoo.tasks.speech import Augmentation, Features, SpeechData, fsdd, fsdd_strings, librispeech, speech_commands
from zoo.tasks.speech.data.published import DIGITS

HOW: dict[str, Any] = {"max_epochs": 1, "batch_size": 4}


def tone(hertz: float, seconds: float = 0.2, rate: int = 8000) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Takes of two speakers, of whom the second is higher."""
    place = tmp_path / "fsdd" / "recordings"
    place.mkdir(parents=True)
    for digit in range(10):
        for number, speaker in enumerate(("anna", "ben")):
            for take in (0, 5, 10, 11):
                hertz = 300 + 100 * digit + 1500 * number
                soundfile.write(place / f"{digit}_{speaker}_{take}.wav", tone(hertz, 0.15 + 0.01 * take), 8000)
    return tmp_path


def test_fsdd_is_split_by_its_takes(digits: Path) -> None:
    data: SpeechData = fsdd(root=str(digits), **HOW)
    corpus = data.content.corpus
    assert np.bincount(corpus.splits).tolist() == [40, 20, 20]
    found = dict(zip(corpus.ids, zip(corpus.texts, corpus.splits.tolist(), strict=True), strict=True))
    assert found["7_anna_0"] == ("seven", 2)
    assert found["3_ben_5"] == ("three", 1)
    alone: SpeechData = fsdd(root=str(digits), left_out="ben", **HOW)
    speakers = {
        split: {w.speaker for b in alone.loader(split) for w in b.written} for split in ("train", "val", "test")
    }
    assert speakers == {"train": {"anna"}, "val": {"anna"}, "test": {"ben"}}
    with pytest.raises(ConfigError, match=r"data.left_out=benn: Did you mean 'ben'"):
        fsdd(root=str(digits), left_out="benn", **HOW).setup()


def strings(root: Path, **options: Any) -> SpeechData:
    how = {"root": str(root), "strings": 30, "held_out": 6, **HOW, **options}
    data: SpeechData = fsdd_strings(**how)
    return data


def test_strings_are_of_one_speaker_and_known_boundaries(digits: Path) -> None:
    data = strings(digits, snr=60.0)
    corpus = data.content.corpus
    assert np.bincount(corpus.splits).tolist() == [30, 6, 6]
    assert {len(text.split()) for text in corpus.texts} == {3, 4, 5, 6, 7}
    for number, text in enumerate(corpus.texts):
        x, times = data.content.rows[1.0][number], corpus.times[number]
        frames = Features().frames(times, len(x))
        loud, place = x.max(1), 0
        for word in text.split():
            (start, end), digit = frames[place], DIGITS.index(word)
            hertz = 300 + 100 * digit + 1500 * (corpus.speakers[number] == "ben")
            assert (frames[place : place + len(word)] == frames[place]).all()
            assert loud[start + 1 : end - 1].min() > loud[max(0, start - 4) : max(1, start - 3)].max() + 3
            band = int(x[start + 2 : end - 2].mean(0).argmax())
            assert abs(mel_centre(band) - hertz) < 130
            place += len(word) + 1


def test_faster_strings_are_shorter_and_higher(digits: Path) -> None:
    content = strings(digits, snr=60.0, augmentation=Augmentation(speeds=[1.0, 1.25])).content
    for number, times in enumerate(content.corpus.times):
        usual, fast = content.rows[1.0][number], content.rows[1.25][number]
        assert len(fast) == pytest.approx(len(usual) / 1.25, abs=1)
        (start, end), (first, last) = (Features().frames(times[:1] / speed, 10**6)[0] for speed in (1, 1.25))
        bands = [int(x.mean(0).argmax()) for x in (usual[start + 2 : end - 2], fast[first + 2 : last - 2])]
        low, high = map(mel_centre, bands)
        assert high == pytest.approx(1.25 * low, rel=0.13)


def mel_centre(band: int) -> float:
    edges = np.linspace(2595 * np.log10(1 + 20 / 700), 2595 * np.log10(1 + 4000 / 700), 42)
    return float(700 * (10 ** (edges[band + 1] / 2595) - 1))


def test_strings_are_drawn_by_seed_split_and_number(digits: Path) -> None:
    one, other = strings(digits), strings(digits, strings=20)
    assert one.content.corpus.texts[30:] == other.content.corpus.texts[20:]
    assert (one.content.rows[1.0][3] == other.content.rows[1.0][3]).all()
    assert one.content.corpus.texts != strings(digits, seed=1).content.corpus.texts
    assert {len(text.split()) for text in strings(digits, fewest=20, most=20).content.corpus.texts} == {20}
    alone = strings(digits, left_out="anna").content.corpus
    assert {alone.speakers[number] for number in alone.numbers("test")} == {"anna"}
    assert {alone.speakers[number] for number in alone.numbers("train")} == {"ben"}
    with pytest.raises(ConfigError, match=r"data.fewest=8 is more than data.most=7"):
        strings(digits, fewest=8)
    with pytest.raises(ConfigError, match=r"data.strings=1000000, held_out=6, most=7 make .* numbers of generated"):
        strings(digits, strings=1_000_000).setup()
    words = strings(digits, tokeniser="words")
    assert words.sizes()["tokens"] == 14


def test_files_that_are_not_fsdd(digits: Path) -> None:
    place = digits / "fsdd" / "recordings"
    (place / "9_ben_0.wav").write_bytes(b"x")
    with pytest.raises(DataError, match=r"9_ben_0.wav: it cannot be decoded"):
        fsdd(root=str(digits), **HOW).setup()
    for path in place.glob("9_*_0.wav"):
        path.unlink()
    with pytest.raises(DataError, match=r"9 of 10 digits have a recording for test"):
        fsdd(root=str(digits), **HOW).setup()
    (place / "strange.wav").touch()
    with pytest.raises(DataError, match=r"strange.wav: this is no file of FSDD"):
        fsdd(root=str(digits), **HOW).setup()


def books(place: Path, part: str, count: int, *, seconds: float = 1.5) -> None:
    folder = place / "LibriSpeech" / part / "19" / "198"
    folder.mkdir(parents=True)
    lines = []
    for number in range(count):
        soundfile.write(folder / f"19-198-{number:04d}.flac", tone(440, seconds + number, 16000), 16000)
        lines.append(f"19-198-{number:04d} NORTHANGER ABBEY\n")
    (folder / "19-198.trans.txt").write_text("".join(lines))


def test_librispeech_is_read_from_folders_and_archives(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    books(root, "train-clean-100", 3)
    books(root, "dev-clean", 1)
    books(tmp_path / "elsewhere", "test-clean", 2)
    with tarfile.open(root / "test-clean.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "elsewhere" / "LibriSpeech", "LibriSpeech")
    how = {"root": str(root), "cache": str(cache), **HOW, "longest_seconds": 3.0}
    data: SpeechData = librispeech(**how, features=Features(rate=16000, mels=80))
    with pytest.warns(UserWarning, match="1 training recordings are not of 1 to 3 s"):
        data.setup()
    corpus = data.content.corpus
    assert [len(corpus.numbers(split)) for split in ("train", "val", "test")] == [2, 1, 2]
    assert set(corpus.texts) == {"northanger abbey"}
    assert set(corpus.speakers) == {"19"}
    assert (cache / "LibriSpeech" / "test-clean" / "19" / "198" / "19-198.trans.txt").is_file()
    with pytest.raises(ConfigError, match=r"no part is 'dev-cleen'. Did you mean 'dev-clean'"):
        librispeech(**how, val="dev-cleen").setup()
    (root / "LibriSpeech" / "dev-clean" / "19" / "198" / "19-198-0000.flac").unlink()
    with pytest.raises(DataError, match=r"line 1 names 19-198-0000, and there is no"):
        librispeech(**how).setup()


def test_speech_commands_are_split_by_their_lists(tmp_path: Path) -> None:
    place = tmp_path / "speech_commands_v0.02"
    for word in ("bed", "cat", "_background_noise_"):
        (place / word).mkdir(parents=True)
        for take in range(3):
            soundfile.write(place / word / f"0a7c_nohash_{take}.wav", tone(440, 1.0, 16000), 16000)
    (place / "validation_list.txt").write_text("bed/0a7c_nohash_0.wav\n")
    (place / "testing_list.txt").write_text("cat/0a7c_nohash_1.wav\n")
    data: SpeechData = speech_commands(root=str(tmp_path), **HOW)
    corpus = data.content.corpus
    assert [len(corpus.numbers(split)) for split in ("train", "val", "test")] == [4, 1, 1]
    assert set(corpus.texts) == {"bed", "cat"}
    (place / "testing_list.txt").write_text("cat/gone_nohash_1.wav\n")
    with pytest.raises(DataError, match=r"1 listed recordings are missing, such as cat/gone"):
        speech_commands(root=str(tmp_path), **HOW).setup()


@pytest.mark.parametrize("make", [fsdd, fsdd_strings, librispeech, speech_commands])
def test_without_a_network_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("no network")

    monkeypatch.setattr("socket.create_connection", refused)
    with pytest.raises(OfflineError, match=r"Without a network, place it there"):
        make(root=str(tmp_path), **HOW).setup()


def test_an_archive_is_unpacked_completely_or_not_at_all(tmp_path: Path) -> None:
    def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))

    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        add(archive, "./in/side/x.txt", b"x")
        add(archive, "in/../../out.txt", b"out")
        add(archive, "/absolute.txt", b"out")
        add(archive, "other.txt", b"y")
    assert extract_folder(path, "in", tmp_path / "deep" / "made") == tmp_path / "deep" / "made"
    assert [each.name for each in (tmp_path / "deep" / "made").rglob("*")] == ["side", "x.txt"]
    assert not (tmp_path / "out.txt").exists()
    assert not (tmp_path / "deep" / "out.txt").exists()
    with pytest.raises(DataError, match="it has no folder none"):
        extract_folder(path, "none", tmp_path / "none")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="damaged or cut short"):
        extract_folder(path, "in", tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.tar.gz", "deep"]


@pytest.mark.real
@pytest.mark.skipif("ZOO_DATA" not in os.environ, reason="$ZOO_DATA is not set")
def test_fsdd_itself() -> None:
    root = os.environ["ZOO_DATA"]
    if not (Path(root) / "fsdd").is_dir():
        pytest.skip("there is no fsdd in $ZOO_DATA")
    data: SpeechData = fsdd(root=root, **HOW)
    corpus = data.content.corpus
    assert np.bincount(corpus.splits).tolist() == [2400, 300, 300]
    assert len(set(corpus.speakers)) == 6
    joined = strings(Path(root))
    assert joined.sizes()["tokens"] == 20
    assert np.isfinite(joined.content.rows[1.0][0]).all()
