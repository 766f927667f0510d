"""Downloads from a server on this machine: whole, cut, wrong, gone."""

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from zoo.data.download import fetch
from zoo.errors import DataError, OfflineError

CONTENT = bytes(range(256)) * 1024
HASH = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `content`; says what was asked of it, and misbehaves as it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.cuts: list[int] = []  # bytes after which each of the next answers breaks off
        self.ranges = True
        self.failures: list[int] = []  # statuses of the next answers
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if self.server.failures:
            return self.send_error(self.server.failures.pop(0))
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        if start and start >= len(self.server.content):
            return self.send_error(416)
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            end = len(self.server.content)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cuts.pop(0)] if self.server.cuts else body)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output clean."""


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def part(destination: Path) -> Path:
    return destination.with_name(destination.name + ".part")


@pytest.mark.parametrize("sha256", [None, HASH, HASH.upper()])
def test_a_file_arrives_in_a_folder_that_is_made(server: Server, tmp_path: Path, sha256: str | None) -> None:
    destination = tmp_path / "a" / "b" / "file.bin"
    assert fetch(server.url, destination, sha256=sha256) == destination
    assert destination.read_bytes() == CONTENT
    assert list(destination.parent.iterdir()) == [destination]


def test_a_file_that_is_there_is_left_alone(server: Server, tmp_path: Path) -> None:
    destination = tmp_path / "file.bin"
    destination.write_text("mine")
    fetch(server.url, destination, sha256=HASH)
    assert destination.read_text() == "mine"
    assert server.asked == []


def test_a_cut_is_resumed_within_one_call(server: Server, tmp_path: Path) -> None:
    server.cuts = [1000, 500]
    fetch(server.url, tmp_path / "file.bin", sha256=HASH)
    assert server.asked == [None, "bytes=1000-", "bytes=1500-"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_cut_is_resumed_by_a_later_call(server: Server, tmp_path: Path) -> None:
    destination = tmp_path / "file.bin"
    server.cuts = [1000, 0, 0]
    with pytest.raises(OfflineError, match="cut before the end"):
        fetch(server.url, destination, sha256=HASH)
    assert not destination.exists()
    assert part(destination).stat().st_size == 1000
    fetch(server.url, destination, sha256=HASH)
    assert server.asked[-1] == "bytes=1000-"
    assert destination.read_bytes() == CONTENT
    assert not part(destination).exists()


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.ranges, server.cuts = False, [1000]
    fetch(server.url, tmp_path / "file.bin", sha256=None)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_that_is_whole_or_too_long_starts_over(server: Server, tmp_path: Path) -> None:
    part(tmp_path / "file.bin").write_bytes(CONTENT + b"more")
    fetch(server.url, tmp_path / "file.bin", sha256=None)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_of_another_file_is_not_built_upon(server: Server, tmp_path: Path) -> None:
    part(tmp_path / "file.bin").write_bytes(b"x" * 1000)
    fetch(server.url, tmp_path / "file.bin", sha256=HASH)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_wrong_hash_keeps_nothing(server: Server, tmp_path: Path) -> None:
    server.content = b"a login page"
    with pytest.raises(DataError, match=f"not the expected file.*not {HASH}.*not kept.*place the right file at"):
        fetch(server.url, tmp_path / "file.bin", sha256=HASH)
    assert list(tmp_path.iterdir()) == []


def test_a_passing_failure_is_tried_again(server: Server, tmp_path: Path) -> None:
    server.failures = [503]
    fetch(server.url, tmp_path / "file.bin", sha256=HASH)
    assert len(server.asked) == 2


def test_a_refusal_is_final(server: Server, tmp_path: Path) -> None:
    server.failures = [404, 200]
    with pytest.raises(OfflineError, match="the server answered 404"):
        fetch(server.url, tmp_path / "file.bin", sha256=None)
    assert len(server.asked) == 1


def test_a_server_that_is_gone_tells_what_to_do(tmp_path: Path) -> None:
    gone = Server()
    url = gone.url
    gone.server_close()
    destination = tmp_path / "sets" / "file.bin"
    with pytest.raises(OfflineError) as caught:
        fetch(url, destination, sha256=None)
    for words in ("file.bin is needed", url, str(destination), "Without a network, place it there", "$ZOO_DATA"):
        assert words in str(caught.value)


def test_silence_ends(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/file.bin"
        with pytest.raises(OfflineError, match="timed out"):
            fetch(url, tmp_path / "file.bin", sha256=None, timeout=0.1)


def test_a_place_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match="cannot be written there"):
        fetch(server.url, tmp_path / "file" / "file.bin", sha256=None)


def test_of_two_at_once_one_downloads(server: Server, tmp_path: Path) -> None:
    destination = tmp_path / "file.bin"
    threads = [
        threading.Thread(target=fetch, args=(server.url, destination), kwargs={"sha256": HASH}) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.asked == [None]
    assert list(tmp_path.iterdir()) == [destination]
    assert destination.read_bytes() == CONTENT


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """Such as a link into a disk that is not mounted."""
    (tmp_path / "link").symlink_to(tmp_path / "unmounted" / "ml-1m.txt")
    (tmp_path / "folder").mkdir()
    for name, what in (("link", "is a link to nothing"), ("folder", "is no file")):
        with pytest.raises(DataError, match=f"{name}: {what}, and is left alone"):
            fetch("http://127.0.0.1:9/none", tmp_path / name, sha256=None)
    assert (tmp_path / "link").is_symlink()
