"""The user's own recordings: formats, rates, parts of files, and everything that can be wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from zoo.data.cache import cached_arrays
from zoo.data.tables import collect_errors
from zoo.errors import ConfigError, DataError
from zoo.tasks.speech import Augmentation, Features, SpeechData, audio_manifest
from zoo.tasks.speech.data import recordings
from zoo.tasks.speech.data.audio import DEFAULT_LIMITS, Clip, Limits, SoundError, read_sound
from zoo.tasks.speech.data.resampling import resample

SAMPLES = Path(__file__).parents[4] / "data" / "samples" / "speech"
SPLITS = ["train"] * 3 + ["val", "test"]


def tone(seconds: float = 0.5, rate: int = 8000, hertz: float = 440.0, loud: float = 0.3) -> np.ndarray:
    return (loud * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def write(path: Path, samples: np.ndarray, rate: int = 8000, **options: Any) -> None:
    soundfile.write(path, samples, rate, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five good recordings, and a table of them."""
    for number in range(5):
        write(tmp_path / f"{number}.wav", tone(0.3 + 0.05 * number, hertz=300 + 100 * number))
    table(tmp_path)
    return tmp_path


def table(folder: Path, *rows: str, header: str = "path,text,split") -> None:
    good = [f"{number}.wav,word,{split}" for number, split in enumerate(SPLITS)]
    (folder / "own.csv").write_text("\n".join([header, *good, *rows]) + "\n")


def own(place: Path, **options: Any) -> SpeechData:
    how = {"table": str(place / "own.csv"), "max_epochs": 1, "batch_size": 2, **options}
    data: SpeechData = audio_manifest(**how)
    return data


def refused(data: SpeechData) -> str:
    with pytest.raises((DataError, ConfigError)) as caught:
        data.setup()
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "rate", "channels", "options"),
    [
        ("x.wav", 8000, 1, {}),
        ("x.wav", 8000, 2, {"subtype": "FLOAT"}),
        ("x.wav", 44100, 2, {"subtype": "PCM_24"}),
        ("x.flac", 16000, 1, {}),
        ("x.ogg", 16000, 2, {}),
        ("x.mp3", 22050, 1, {}),
        ("x.wav", 11025, 1, {"subtype": "PCM_U8"}),
    ],
)
def test_any_format_rate_and_number_of_channels(
    tmp_path: Path, name: str, rate: int, channels: int, options: dict[str, Any]
) -> None:
    x = tone(0.5, rate)
    write(tmp_path / name, np.stack([x] * channels, 1), rate, **options)
    sound = read_sound(Clip(tmp_path / name), DEFAULT_LIMITS)
    found = resample(sound.samples, sound.rate, 8000)
    assert abs(len(found) - 4000) <= (600 if name.endswith("mp3") else 1)
    spectrum = np.abs(np.fft.rfft(found[1000:3000]))
    assert abs(spectrum.argmax() * 4 - 440) <= 4
    assert abs(np.abs(found[1000:3000]).max() - 0.3) < 0.03


def test_parts_of_a_file_are_read_by_their_seconds(tmp_path: Path) -> None:
    x = np.concatenate([tone(0.4, hertz=300), tone(0.4, hertz=1200)])
    write(tmp_path / "x.wav", x, subtype="FLOAT")
    part = read_sound(Clip(tmp_path / "x.wav", 0.4, 0.8), DEFAULT_LIMITS)
    np.testing.assert_allclose(part.samples, x[3200:], atol=1e-6)
    assert len(read_sound(Clip(tmp_path / "x.wav", 0.7), DEFAULT_LIMITS).samples) == 800
    for start, end in ((0.5, 0.4), (-0.1, 0.4), (0.4, 0.9), (0.8, 0.8)):
        with pytest.raises(SoundError, match="is not in the recording"):
            read_sound(Clip(tmp_path / "x.wav", start, end), DEFAULT_LIMITS)


def test_a_rate_with_an_odd_ratio_needs_no_large_filter() -> None:
    found = resample(tone(1.0, 44_099), 44_099, 8000)
    assert abs(len(found) - 8000) <= 1


def test_a_faster_recording_is_shorter_and_higher() -> None:
    found = resample(tone(1.0), 8000, 8000, speed=1.1)
    assert abs(len(found) - 8000 / 1.1) <= 1
    assert abs(np.abs(np.fft.rfft(found[:4000])).argmax() * 2 - 440 * 1.1) <= 2


def test_a_table_is_read_with_its_columns(folder: Path) -> None:
    x = np.concatenate([tone(0.3), tone(0.4)])
    (folder / "more").mkdir()
    write(folder / "more" / "long.flac", x)
    rows = [
        {
            "path": f"{number}.wav",
            "text": "Word  word ",
            "start": None,
            "end": None,
            "speaker": "anna",
            "split": split,
        }
        for number, split in enumerate(SPLITS)
    ]
    rows.append({"path": "more/long.flac", "text": "end", "start": 0.3, "end": 0.7, "speaker": "ben", "split": "train"})
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = own(folder, table=str(folder / "own.jsonl"))
    corpus = data.content.corpus
    assert corpus.texts == ["word word"] * 5 + ["end"]
    assert corpus.ids[-1] == "more/long.flac:0.3-0.7"
    assert corpus.speakers == ["anna"] * 5 + ["ben"]
    assert [len(x) for x in data.content.rows[1.0]] == [30, 35, 40, 45, 50, 40]
    assert [len(data.examples(split).entries) for split in ("train", "val", "test")] == [4, 1, 1]


def test_a_folder_of_sounds_and_transcripts(tmp_path: Path) -> None:
    for number, split in enumerate(SPLITS):
        (tmp_path / split).mkdir(exist_ok=True)
        write(tmp_path / split / f"{number}.wav", tone())
        (tmp_path / split / f"{number}.txt").write_text("word\nword\n")
    (tmp_path / "alone.txt").write_text("nothing\n")
    data = own(tmp_path, table=None, folder=str(tmp_path))
    with pytest.warns(UserWarning, match="1 transcripts have no recording of the same name, such as alone.txt"):
        data.setup()
    corpus = data.content.corpus
    assert dict(zip(corpus.ids, corpus.texts, strict=True))["train/1.wav"] == "word word"
    assert np.bincount(corpus.splits).tolist() == [3, 1, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"table": f"{SAMPLES}/recordings.csv"},
        {"table": f"{SAMPLES}/talk.jsonl"},
        {"table": None, "folder": f"{SAMPLES}/words"},
    ],
)
def test_the_samples_can_be_read(options: dict[str, Any]) -> None:
    data: SpeechData = audio_manifest(max_epochs=1, batch_size=4, **options)
    assert all(len(data.examples(split).entries) for split in ("train", "val", "test"))


def broken(folder: Path) -> None:
    (folder / "bad.wav").write_bytes(b"no sound at all, but text")


def nothing(folder: Path) -> None:
    (folder / "bad.wav").touch()


def no_samples(folder: Path) -> None:
    write(folder / "bad.wav", np.zeros(0, dtype=np.float32))


def short(folder: Path) -> None:
    write(folder / "bad.wav", tone(0.01))


def long(folder: Path) -> None:
    write(folder / "bad.wav", np.zeros(1000 * 600, dtype=np.float32), 1000)


def slow(folder: Path) -> None:
    write(folder / "bad.wav", tone(), 5)


def not_finite(folder: Path) -> None:
    x = tone()
    x[7] = np.nan
    write(folder / "bad.wav", x, subtype="FLOAT")


def enormous(folder: Path) -> None:
    x = tone()
    x[7] = 1e37
    write(folder / "bad.wav", x, subtype="FLOAT")


def halved(folder: Path) -> None:
    write(folder / "bad.wav", tone())
    content = (folder / "bad.wav").read_bytes()
    (folder / "bad.wav").write_bytes(content[: len(content) // 2])


def good(folder: Path) -> None:
    write(folder / "bad.wav", tone())


def truncated(folder: Path) -> None:
    write(folder / "bad.flac", tone(5.0))
    content = (folder / "bad.flac").read_bytes()
    (folder / "bad.flac").write_bytes(content[: len(content) // 2])


BAD: list[Any] = [
    (broken, "bad.wav,x,train", "line 7, column 'path': bad.wav: it cannot be decoded"),
    (nothing, "bad.wav,x,train", "line 7, column 'path': bad.wav: the file is empty"),
    (no_samples, "bad.wav,x,train", "line 7, column 'path': bad.wav: the recording has no samples"),
    (short, "bad.wav,x,train", "the recording has 0.01 s, and 0.05 are the fewest"),
    (long, "bad.wav,x,train", "the recording has 600.0 s, and 60 are the most"),
    (slow, "bad.wav,x,train", "its rate is 5 samples a second"),
    (not_finite, "bad.wav,x,train", "samples that are not finite"),
    (enormous, "bad.wav,x,train", "it has samples as large as 1e+37, where full scale is 1. Make it anew."),
    (halved, "bad.wav,x,train", "bad.wav: it is cut short: its header promises 8,000 bytes of sound, and 3,9"),
    (good, "bad.wav,,train", "line 7, column 'text': the cell is empty"),
    (
        good,
        f"bad.wav,{'x' * 60},train",
        "line 7, column 'text': the transcript has 60 characters, and the recording 50",
    ),
    (good, "missing.wav,x,train", "line 7, column 'path': missing.wav: the file does not exist"),
    (good, "../bad.wav,x,train", "line 7, column 'path': bad.wav: the file does not exist"),
    (good, "/etc/passwd,x,train", "line 7, column 'path': passwd: it cannot be decoded"),
    (good, "own.csv,x,train", "own.csv: it cannot be decoded"),
]


@pytest.mark.parametrize(("make", "row", "message"), BAD)
def test_a_bad_recording_is_named_with_its_line_or_left_out_and_counted(
    folder: Path, make: Callable[[Path], None], row: str, message: str
) -> None:
    make(folder)
    table(folder, row)
    said = refused(own(folder))
    assert message in said
    assert "own.csv, line 7" in said
    assert "on_bad_row=skip leaves such rows out and counts them" in said
    data = own(folder, on_bad_row="skip", cache=str(folder / "cache"))
    with pytest.warns(UserWarning, match=r"skipped 1 bad recording\. The first: .*own.csv, line 7"):
        data.setup()
    assert len(data.content.corpus) == 5


@pytest.mark.parametrize("kind", ["wav", "aiff", "au"])
def test_a_recording_that_a_pipe_wrote_or_that_is_a_part_needs_no_whole_file(folder: Path, kind: str) -> None:
    path = folder / f"bad.{kind}"
    write(path, tone())
    raw = bytearray(path.read_bytes())
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(SoundError, match="cut short"):
        read_sound(Clip(path), Limits())
    assert len(read_sound(Clip(path, 0.0, 0.2), Limits()).samples)
    if kind == "wav":
        place = raw.index(b"data") + 4
        raw[place : place + 4] = b"\xff" * 4  # the size that a program writes if it does not know it
        path.write_bytes(raw)
        assert len(read_sound(Clip(path), Limits()).samples) == len(tone())


def without_count(path: Path) -> bytes:
    """The frames of an MP3 file without the first one, which says how many there are."""
    raw = path.read_bytes()
    return raw[raw.index(raw[:2], 4) :]


@pytest.mark.parametrize(("rate", "tag"), [(8000, b""), (16000, b"ID3\4\0\0\0\0\1\2" + bytes(130)), (44100, b"")])
def test_an_mp3_file_that_was_cut_is_a_bad_one(folder: Path, rate: int, tag: bytes) -> None:
    path, x = folder / "bad.mp3", np.random.default_rng(0).normal(scale=0.1, size=4 * rate)
    soundfile.write(path, x, rate)
    whole, frames = path.read_bytes(), without_count(path)
    assert len(read_sound(Clip(path), Limits()).samples) == len(x)
    path.write_bytes(tag + frames[: len(frames) // 2])
    with pytest.raises(SoundError, match="it is cut short: it ends within a frame"):
        read_sound(Clip(path), Limits())
    for share in (0.3, 0.5, 0.9):
        path.write_bytes(tag + whole[: int(len(whole) * share)])
        with pytest.raises(
            SoundError, match=r"it is cut short: its header promises 4\.\d\d s, and [123]\.\d\d are there"
        ):
            read_sound(Clip(path), Limits())
        assert len(read_sound(Clip(path, 0.0, 0.5), Limits()).samples)
    path.write_bytes(tag + whole + b"TAG" + bytes(125))
    assert len(read_sound(Clip(path), Limits()).samples) == len(x)


def test_an_mp3_file_of_which_a_part_would_be_read_is_a_bad_one(folder: Path) -> None:
    """Without a count, the decoder guesses the length from the bit rate of the first frame."""
    path, random = folder / "bad.mp3", np.random.default_rng(0)
    x = np.concatenate([random.normal(scale=0.3, size=16000), np.zeros(6 * 8000)])
    soundfile.write(path, x, 8000)
    path.write_bytes(without_count(path))
    with soundfile.SoundFile(path) as file:
        assert file.frames < len(x) - 8000
    with pytest.raises(SoundError, match=r"does not say how long it is, and \d\.\d\d of 8\.\d\d s would be read"):
        read_sound(Clip(path), Limits())


def test_a_file_that_was_cut_is_a_bad_one(folder: Path) -> None:
    truncated(folder)
    table(folder, "bad.flac,x,train")
    assert "line 7" in refused(own(folder))


def test_all_bad_recordings_are_listed(folder: Path) -> None:
    broken(folder)
    table(folder, "bad.wav,x,train", "missing.wav,x,train", "2.wav,,train")
    with collect_errors() as problems:
        own(folder).setup()
    said = "\n".join(map(str, problems))
    assert len(problems) == 3
    for place in ("line 7, column 'path': bad.wav", "line 8, column 'path': missing.wav", "line 9, column 'text'"):
        assert place in said


def test_a_transcript_that_is_missing_from_a_folder(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / f"{number}.wav", tone())
        (tmp_path / f"{number}.txt").write_text("word")
    (tmp_path / "3.txt").unlink()
    assert "3.wav: its transcript is missing. Write what is said into 3.txt" in refused(
        own(tmp_path, table=None, folder=str(tmp_path))
    )
    (tmp_path / "3.txt").write_text(" \n")
    assert "3.txt: the transcript is empty" in refused(own(tmp_path, table=None, folder=str(tmp_path)))
    (tmp_path / "3.txt").write_bytes(b"\xfc")
    assert "3.txt, line 1: byte 0xfc is not UTF-8" in refused(own(tmp_path, table=None, folder=str(tmp_path)))


def test_files_of_a_folder_that_are_not_read_are_counted(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / f"{number}.wav", tone())
        (tmp_path / f"{number}.txt").write_text("word")
    (tmp_path / "5.txt").rename(tmp_path / "5.TXT")
    for name in ("6.m4a", "7", "8.M4A", ".hidden.wav"):
        (tmp_path / name).write_bytes(b"sound")
    kinds = r"\(2 \.m4a, 1 without an ending; the first: 6\.m4a\), 1 hidden file"
    data = own(tmp_path, table=None, folder=str(tmp_path))
    with pytest.warns(UserWarning, match=rf"left out 3 files not named as recordings {kinds}"):
        data.setup()
    assert len(data.content.corpus) == 6


def test_places_without_recordings(tmp_path: Path) -> None:
    assert "does not exist" in refused(own(tmp_path, table=None, folder=str(tmp_path / "none")))
    assert "there is no recording" in refused(own(tmp_path, table=None, folder=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"data.table and data.folder are missing"):
        own(tmp_path, table=None)


def test_clipped_recordings_and_low_rates_are_counted(folder: Path) -> None:
    write(folder / "1.wav", np.clip(tone(loud=3.0), -1, 1))
    with pytest.warns(UserWarning, match="1 of 5 recordings are clipped"):
        own(folder).setup()
    write(folder / "1.wav", tone(loud=0.999))
    write(folder / "2.wav", tone(rate=4000), 4000)
    with pytest.warns(UserWarning, match="1 of 5 recordings are of a rate below"):
        own(folder).setup()


def test_letters_that_training_lacks_are_counted(folder: Path) -> None:
    rows = [f"{number}.wav,word {number},{split}" for number, split in enumerate(SPLITS)]
    (folder / "own.csv").write_text("\n".join(["path,text,split", *rows]) + "\n")
    with pytest.warns(UserWarning, match="2 transcripts of val and test have what train lacks.*'3', '4'"):
        own(folder).setup()


# Features as .npy


def given(folder: Path, **changes: Any) -> None:
    for number in range(5):
        x = np.random.default_rng(number).standard_normal((20 + number, 7))
        np.save(folder / f"{number}.npy", changes.get(f"x{number}", x))
    rows = [f"{number}.npy,word,{split}" for number, split in enumerate(SPLITS)]
    (folder / "own.csv").write_text("\n".join(["path,text,split", *rows]) + "\n")


GIVEN = {"features": Features(kind="given", normalise="none")}


def test_features_of_files_are_read_as_they_are(tmp_path: Path) -> None:
    given(tmp_path)
    data = own(tmp_path, **GIVEN)
    assert data.sizes()["features"] == 7
    for number, x in enumerate(data.content.rows[1.0]):
        np.testing.assert_allclose(x, np.load(tmp_path / f"{number}.npy").astype(np.float32))


def not_a_number() -> np.ndarray:
    x = np.zeros((20, 7))
    x[4, 2] = np.nan
    return x


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x3": not_a_number()}, "line 5, column 'path': 3.npy: frame 4 has a number that is not finite"),
        ({"x3": np.full((20, 7), 1e30)}, "3.npy: its array has numbers as large as 1e+30. Make the features anew."),
        ({"x3": np.zeros((20, 8))}, "3.npy: its frames have 8 features, and those of other files 7"),
        ({"x3": np.zeros(20)}, "3.npy: its array is float64 of shape (20,)"),
        ({"x3": np.array([["a"] * 7] * 20)}, "3.npy: its array is <U1"),
        ({"x3": np.array([[{}]], dtype=object)}, "3.npy: it is not a .npy file"),
    ],
)
def test_bad_features(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    given(tmp_path, **changes)
    assert message in refused(own(tmp_path, **GIVEN))


def test_sounds_and_features_are_not_mistaken_for_each_other(folder: Path) -> None:
    assert "0.wav: it is no .npy file" in refused(own(folder, **GIVEN))
    given(folder)
    assert "data.features.kind=log_mel makes them of sounds" in refused(own(folder))
    speeds = own(folder, **GIVEN, augmentation=Augmentation(speeds=[0.9, 1.0]))
    assert "data.augmentation.speeds needs recordings" in refused(speeds)


# What is kept on the disk


def test_features_are_made_once_until_a_file_or_an_option_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(where: Any, kind: str, made_of: Any, make: Any) -> Any:
        return cached_arrays(where, kind, made_of, lambda: made.append(made_of) or make())  # type: ignore[func-returns-value]

    monkeypatch.setattr(recordings, "cached_arrays", counted)
    monkeypatch.setattr(recordings, "_TOGETHER", 2)
    place = {"cache": str(folder / "cache")}
    first = own(folder, **place).content.rows[1.0]
    assert len(made) == 3
    again = own(folder, **place).content.rows[1.0]
    assert len(made) == 3
    for one, other in zip(first, again, strict=True):
        assert (one == other).all()
    own(folder, **place, features=Features(normalise="global")).setup()
    assert len(made) == 3, "what is kept is not normalised"
    own(folder, **place, features=Features(mels=30)).setup()
    assert len(made) == 6
    write(folder / "3.wav", tone(hertz=900))
    own(folder, **place).setup()
    assert len(made) == 7, "the features of one file of the cache"


def test_what_is_kept_is_what_is_made(folder: Path) -> None:
    kept = own(folder, cache=str(folder / "cache"), augmentation=Augmentation(speeds=[0.9, 1.0]))
    made = own(folder, augmentation=Augmentation(speeds=[0.9, 1.0]))
    for speed in (0.9, 1.0):
        for one, other in zip(kept.content.rows[speed], made.content.rows[speed], strict=True):
            assert (one == other).all()


# Files for a trained model


def trained(folder: Path, **options: Any) -> tuple[SpeechData, dict[str, Any]]:
    rows = [f"{number}.wav,word 01234,{split}" for number, split in enumerate(SPLITS)]
    (folder / "own.csv").write_text("\n".join(["path,text,split", *rows]) + "\n")
    data = own(folder, **options)
    return data, data.state()


def test_files_folders_and_tables_for_a_trained_model(folder: Path) -> None:
    data, state = trained(folder)
    (folder / "new").mkdir()
    write(folder / "new" / "a.flac", tone(0.5, 16000), 16000)
    write(folder / "new" / "b.wav", tone())
    (folder / "new" / "b.txt").write_text("Word 4")
    (folder / "new.csv").write_text("path\n3.wav\n")
    found = data.from_files([folder / "0.wav", folder / "new", folder / "new.csv"], state)
    assert list(found.content.corpus.ids) == ["0.wav", "new:a.flac", "new:b.wav", "new.csv:3.wav"]
    assert list(found.content.corpus.texts) == [None, None, "word 4", None]
    assert len(found.examples("all").entries) == 4
    assert len(found.examples("test").entries) == 1
    assert [len(x) for x in found.content.rows[1.0]] == [30, 50, 50, 45]
    batches = list(found.predict_dataloader())
    assert sum(len(batch) for batch in batches) == 4


def test_a_character_outside_of_the_alphabet(folder: Path) -> None:
    data, state = trained(folder)
    (folder / "new.csv").write_text("path,text\n3.wav,Word\n4.wav,Größe\n")
    with pytest.raises(DataError, match=r"new.csv, line 3, column 'text': 'g' is not one of the 10 characters that"):
        data.from_files([folder / "new.csv"], state).setup()
    data.on_bad_row = "skip"
    found = data.from_files([folder / "new.csv"], state)
    with pytest.warns(UserWarning, match="skipped 1 bad"):
        found.setup()
    assert len(found.content.corpus) == 1


def test_bad_input_of_a_trained_model(folder: Path) -> None:
    data, state = trained(folder)
    write(folder / "long.wav", tone(70.0))
    with pytest.raises(DataError, match=r"long.wav: the recording has 70.0 s, and 60 are the most"):
        data.from_files([folder / "long.wav"], state).setup()
    data.longest_seconds = 80.0
    assert len(data.from_files([folder / "long.wav"], state).content.rows[1.0][0]) == 7000
    broken(folder)
    with pytest.raises(DataError, match=r"bad.wav: it cannot be decoded"):
        data.from_files([folder / "bad.wav"], state).setup()
    with pytest.raises(DataError, match=r"gone.wav: the file does not exist"):
        data.from_files([folder / "gone.wav"], state).setup()
    np.save(folder / "x.npy", np.zeros((20, 40)))
    with pytest.raises(DataError, match=r"x.npy: it is a file of features"):
        data.from_files([folder / "x.npy"], state).setup()


def test_a_model_of_given_features_refuses_others(tmp_path: Path) -> None:
    given(tmp_path)
    data = own(tmp_path, **GIVEN)
    state = data.state()
    np.save(tmp_path / "x.npy", np.zeros((20, 9)))
    with pytest.raises(DataError, match="the model reads 7 features of a frame, and these recordings have 9"):
        data.from_files([tmp_path / "x.npy"], state).setup()
