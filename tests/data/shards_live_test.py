"""Tar archives of samples against Python's: braceexpand, tarfile and webdataset (the last where it is installed, PYTHONPATH may
name a folder that has it). SHARD_CASES archives are drawn, SHARD_MUTATIONS of them changed at random places."""

import gzip
import io
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zlib

try:
    import webdataset
except ImportError:
    webdataset = None
try:
    import braceexpand
except ImportError:
    braceexpand = None

PROGRAM = os.environ["PROGRAM"]
CASES = int(os.environ.get("SHARD_CASES", "60"))
MUTATIONS = int(os.environ.get("SHARD_MUTATIONS", "1000"))
SEED = int(os.environ.get("SEED", "58"))
MEMORY = 512 << 20


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def ask(lines, timeout=100):
    """The answers, each a list of lines."""
    result = subprocess.run([PROGRAM], input="".join(line + "\n" for line in lines).encode(), stdout=subprocess.PIPE, check=True, timeout=timeout, preexec_fn=limits)
    answers = [[]]
    for line in result.stdout.decode(errors="surrogateescape").split("\n"):
        answers[-1].append(line)
        if line == "end" or line.startswith("error: "):
            answers.append([])
    assert len(answers) == len(lines) + 1, (len(answers), len(lines), answers[-1])
    return answers[:-1]


def name(source, number):
    folder = source.choice(["", "", "a/", "./", "a.b/c/", "deep/" * source.choice([2, 30]), "__meta__/", "d/.e/"])
    key = source.choice([f"{number:04}", f"x{number}", "Ä", "__key__", "k" * 120, ""])
    suffix = source.choice(["jpg", "JPG", "cls", "seg.png", "txt", "", "a.B.c"])
    return folder + key + source.choice([".", ".", ".", ""]) + suffix


def archive(source):
    """A drawn archive, and the names in it."""
    out, names = io.BytesIO(), []
    with tarfile.open(fileobj=out, mode="w", format=source.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])) as tar:
        number = 0
        for _ in range(source.randrange(1, 25)):
            number += source.random() < 0.5
            entry = tarfile.TarInfo(name(source, number) or "empty")
            entry.type = source.choice([tarfile.REGTYPE] * 12 + [tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
            if entry.type == tarfile.AREGTYPE and (entry.name.endswith("/") or len(entry.name) > 99):
                entry.type = tarfile.REGTYPE  # of the oldest form such a name is a folder's, and older tarfiles look at 100 bytes of it
            entry.linkname = "target" if entry.type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            content = source.randbytes(source.choice([0, 1, 511, 512, 513, source.randrange(5000)]))
            entry.size = len(content) if entry.isreg() else 0
            if source.random() < 0.1:
                entry.pax_headers = {"comment": "x" * source.randrange(2000)}
            try:
                tar.addfile(entry, io.BytesIO(content))
            except ValueError:  # a name that this format has no room for
                continue
            names.append(entry.name)
    return out.getvalue(), names


class Shards(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_patterns_are_braceexpands(self):
        if braceexpand is None:
            self.skipTest("braceexpand is not installed")
        source = random.Random(SEED)
        patterns = ["train-{000000..000127}.tar", "{a,b}{1..3}", "{07..10}", "{1..10..3}", "{a..g..2}", "{g..a}", "{4..1}", "{2..-1}", "x{,y}", "{a}",
                    "{}", "a{b{c,d},e}f", r"{1\{2,3}", r"a\,b", "{01..-3}", "{-5..05}", "{1..3..0}", "{a,b", "a}b", "{{1..3},x}", "pipe:cat {a,b}.tar",
                    "{Z..a}", "{1..2}..{3..4}", "{a..b..}", "{,}", "{1,{2..3}}{4,5}"]  # fmt: skip
        for _ in range(300):
            patterns.append("".join(source.choice(["{", "}", ",", "..", "a", "1", "07", "-2", "b", "\\", "Z", "/"]) for _ in range(source.randrange(1, 12))))
        patterns = [pattern for pattern in patterns if "::" not in pattern and not pattern.endswith("\\")]
        for pattern, answer in zip(patterns, ask([f"braces\t{pattern}" for pattern in patterns])):
            try:
                expected = list(braceexpand.braceexpand(pattern))
            except braceexpand.UnbalancedBracesError:
                self.assertTrue(answer[0].startswith("error: "), (pattern, answer))
                continue
            except Exception:
                continue  # it falls over a range such as {a..1}
            self.assertEqual(answer[0].split("\t"), expected, pattern)

    def test_samples_are_webdatasets(self):
        if webdataset is None:
            self.skipTest("webdataset is not installed")
        source = random.Random(SEED + 1)
        urls, kinds = [], []
        for case in range(CASES):
            content, _ = archive(source)
            kind = source.choice(["plain", "gzip", "pipe", "file"])
            path = self.folder / f"{case}.tar"
            path.write_bytes(gzip.compress(content) if kind == "gzip" else content)
            urls.append({"pipe": f"pipe:cat {path}", "file": f"file:{path}"}.get(kind, str(path)))
            kinds.append(kind)
        refused = 0
        for url, answer in zip(urls, ask([f"read\t{url}" for url in urls])):
            try:
                expected = []
                for sample in webdataset.WebDataset(url, shardshuffle=False, empty_check=False):
                    files = [part for key, value in sample.items() if not key.startswith("__") for part in (key, str(len(value)), str(zlib.crc32(value)))]
                    # Its own keys begin like that too; a suffix never does here.
                    expected.append("\t".join([sample["__key__"], *files]))
            except ValueError as error:
                self.assertIn("duplicate file name", str(error))
                self.assertIn("has two files with the suffix", answer[-1])
                refused += 1
                continue
            self.assertEqual(answer, [*expected, "end"], url)
        self.assertLess(refused, CASES)

    def test_names_and_contents_are_tarfiles(self):
        source = random.Random(SEED + 2)
        archives = [archive(source)[0] for _ in range(CASES)]
        paths = [self.folder / f"{case}.tar" for case in range(CASES)]
        for path, content in zip(paths, archives):
            path.write_bytes(content)
        for path, content, answer in zip(paths, archives, ask([f"read\t{path}" for path in paths])):
            expected = []
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                for entry in tar:
                    if not entry.isreg() or re.match(r"__[^/]*__($|/)", entry.name):
                        continue
                    match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", entry.name)
                    if not match:
                        continue
                    data = tar.extractfile(entry).read()
                    file = [match[2].lower(), str(len(data)), str(zlib.crc32(data))]
                    if expected and expected[-1][0] == match[1]:
                        if match[2].lower() in expected[-1][1::3]:
                            expected = None
                            break
                        expected[-1] += file
                    else:
                        expected.append([match[1], *file])
            if expected is None:
                self.assertIn("has two files with the suffix", answer[-1])
            else:
                self.assertEqual(answer, ["\t".join(sample) for sample in expected] + ["end"], path)

    def test_changed_archives_end_in_time_and_within_memory(self):
        source = random.Random(SEED + 3)
        paths = []
        for case in range(MUTATIONS):
            content = bytearray(archive(source)[0])
            for _ in range(source.choice([1, 1, 3, 20])):
                place = source.randrange(len(content))
                change = source.randrange(6)
                if change == 0:
                    content[place] ^= 1 << source.randrange(8)
                elif change == 1:
                    del content[place:]
                    content += b"\0" * (not content)
                elif change == 2:
                    content[place : place + 12] = source.choice([b"77777777777\0", b"\x80" + b"\0" * 3 + b"\x7f" * 8, b"-1\0", b"            "])
                elif change == 3:
                    begin = source.randrange(len(content)) // 512 * 512
                    content[place // 512 * 512 : place // 512 * 512] = content[begin : begin + 512]
                elif change == 4:
                    header = place // 512 * 512  # a header with another size or type, and its checksum mended
                    if header + 512 <= len(content):
                        content[header + 124 : header + 136] = source.choice([b"77777777777\0", b"\x80" + b"\0" * 7 + b"\x40" + b"\0" * 3, b"00000000000\0"])
                        content[header + 156] = source.choice(b"0LKxgS1257\0")
                        content[header + 148 : header + 156] = b" " * 8
                        content[header + 148 : header + 156] = b"%06o\0 " % sum(content[header : header + 512])
                else:
                    del content[place : place + source.randrange(1, 2000)]
                    content += b"\0" * (not content)
            path = self.folder / f"{case}.tar"
            path.write_bytes(gzip.compress(bytes(content), 1)[: source.choice([None, -9])] if source.random() < 0.2 else bytes(content))
            paths.append(path)
        begin = time.monotonic()
        answers = ask([f"read\t{path}" for path in paths], timeout=120)
        print(f"{MUTATIONS} changed archives: {time.monotonic() - begin:.1f} s")
        ended = sum(answer[-1] == "end" for answer in answers)
        self.assertGreater(ended, MUTATIONS // 50)
        self.assertGreater(MUTATIONS - ended, MUTATIONS // 10)
        for path, answer in zip(paths, answers):
            if answer[-1] != "end":
                self.assertIn(str(path), answer[-1])

    def test_a_command_that_fails_is_an_error(self):
        content = self.folder / "a.tar"
        with tarfile.open(content, "w") as tar:
            tar.addfile(tarfile.TarInfo("a.txt"))
        answers = ask([f"read\tpipe:cat {content}; exit 3", "read\tpipe:kill -9 $$", f"count\tpipe:cat {content}", "read\thttps://x/a.tar", f"count\tpipe:yes", "read\tnone.tar"])
        self.assertEqual(answers[0][-1], f"error: pipe:cat {content}; exit 3: the command ended with status 3")
        self.assertIn("ended by signal 9", answers[1][-1])
        self.assertEqual(answers[2], ["1", "end"])
        self.assertIn("such as 'pipe:curl -sfL https://x/a.tar'", answers[3][-1])
        self.assertIn("expected the header of a file", answers[4][-1])
        self.assertIn("none.tar: cannot be opened", answers[5][-1])


unittest.main()
