"""Arrays and tokens against NumPy: arrays_live_test.py PROGRAM. Skipped where there is no NumPy."""

import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import torch
except ImportError as error:
    print(f"skipped: this Python has no NumPy: {error}")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)
CASES = int(os.environ.get("CASES", "150"))
SEED = int(os.environ.get("SEED", "58"))
NUMBERS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
SHAPES = [(), (1,), (0,), (7,), (3, 4), (4, 0, 2), (1, 5), (2, 3, 4), (2, 1, 3, 2, 2), (300,)]


def shown(array):
    """What the program prints of a tensor of this array."""
    tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="))) if array.dtype.byteorder == ">" else torch.from_numpy(array)
    names = {"bool": "Bool", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long", "uint8": "Byte", "uint16": "UInt16",
             "uint32": "UInt32", "uint64": "UInt64", "float16": "Half", "float32": "Float", "float64": "Double", "complex64": "ComplexFloat",
             "complex128": "ComplexDouble"}  # fmt: skip
    return str(list(tensor.shape)), names[str(tensor.dtype).removeprefix("torch.")]


def drawn(source):
    dtype = numpy.dtype(source.choice(NUMBERS))
    shape = source.choice(SHAPES)
    raw = numpy.frombuffer(source.randbytes(max(1, int(numpy.prod(shape))) * dtype.itemsize), numpy.uint8)
    if dtype == bool:
        raw = raw & 1
    array = raw.view(dtype)[: int(numpy.prod(shape))].reshape(shape)
    return numpy.asfortranarray(array) if source.random() < 0.4 else array


class Arrays(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, lines):
        result = subprocess.run([PROGRAM], input="\n".join(lines) + "\n", stdout=subprocess.PIPE, universal_newlines=True, check=True, timeout=100)
        answers = result.stdout.splitlines()
        self.assertEqual(len(answers), len(lines))
        return answers

    def test_arrays_come_and_go_with_numpys_bytes(self):
        source = random.Random(SEED)
        lines, cases = [], []
        for number in range(CASES):
            array, kind = drawn(source), source.choice(["load", "map"])
            version = source.choice([None, None, (1, 0), (2, 0), (3, 0)])
            is_big = kind == "load" and source.random() < 0.3
            file, out = self.folder / f"{number}.npy", self.folder / f"{number}.out.npy"
            with open(file, "wb") as stream:
                swapped = array.astype(array.dtype.newbyteorder(">")) if is_big else array
                numpy.lib.format.write_array(stream, swapped, version)
            lines.append(f"{kind} {file} {out}")
            cases.append((array, out))
        for answer, line, (array, out) in zip(self.run_program(lines), lines, cases):
            self.assertFalse(answer.startswith("error"), (line, answer))
            shape, dtype = shown(array)
            self.assertTrue(answer.startswith(shape) and answer.endswith(f" {dtype} "), (answer, shape, dtype))
            numpy.save(self.folder / "expected.npy", array)
            self.assertEqual(out.read_bytes(), (self.folder / "expected.npy").read_bytes(), line)

    def test_archives_come_and_go(self):
        source = random.Random(SEED + 1)
        lines, cases = [], []
        for number in range(100):
            arrays = {f"a{i}": drawn(source) for i in range(source.randrange(4))}
            save = source.choice([numpy.savez, numpy.savez_compressed])
            file, out = self.folder / f"{number}.npz", self.folder / f"{number}.out.npz"
            save(file, **arrays)
            lines.append(f"npz {file} {out} {source.randrange(2)}")
            cases.append((arrays, out))
        for answer, (arrays, out) in zip(self.run_program(lines), cases):
            self.assertFalse(answer.startswith("error"), answer)
            with numpy.load(out) as written:
                self.assertEqual(sorted(written.files), sorted(arrays))
                for name, array in arrays.items():
                    self.assertEqual(written[name].dtype, array.dtype)
                    self.assertEqual(written[name].tobytes("A"), array.tobytes("A"))
                    self.assertEqual(written[name].flags.f_contiguous, array.flags.f_contiguous)

    def test_what_no_tensor_has_is_refused(self):
        arrays = {
            "objects": (numpy.array([{}, []], dtype=object), "pickled Python objects"),
            "texts": (numpy.array(["ab"]), "NumPy's type '<U2'"),
            "dates": (numpy.array(["2020-01-01"], dtype="M8[D]"), "NumPy's type '<M8[D]'"),
            "structures": (numpy.zeros(2, dtype=[("x", "f4"), ("y", "i4")]), "structures with named fields"),
            "long": (numpy.zeros(2, dtype=numpy.longdouble), "'<f16'"),
        }
        files = {name: self.folder / f"{name}.npy" for name in arrays}
        for name, file in files.items():
            numpy.save(file, arrays[name][0], allow_pickle=True)
        big = self.folder / "big.npy"
        numpy.save(big, numpy.arange(3, dtype=">i4"))
        answers = self.run_program([f"load {file} x" for file in files.values()] + [f"map {big} x"])
        for answer, problem in zip(answers, [problem for _, problem in arrays.values()] + ["big-endian, so it cannot be mapped"]):
            self.assertTrue(answer.startswith("error: ") and problem in answer, answer)

    def test_flat_tokens_are_nanogpts(self):
        tokens = numpy.random.RandomState(0).randint(0, 65536, 1000).astype(numpy.uint16)
        file = self.folder / "train.bin"
        tokens.tofile(file)
        data = numpy.memmap(file, dtype=numpy.uint16, mode="r")  # as nanoGPT's get_batch
        answer = self.run_program([f"tokens {file} 16 1 1 -1 " + " ".join(str(i) for i in range(984))])[0].split()
        self.assertEqual(answer[:3], ["984", "1000", "1"])
        got = numpy.array(answer[3:], dtype=numpy.int64).reshape(984, 2, 16)
        for i in range(len(data) - 16):
            self.assertEqual(got[i][0].tolist(), data[i : i + 16].astype(numpy.int64).tolist())
            self.assertEqual(got[i][1].tolist(), data[i + 1 : i + 1 + 16].astype(numpy.int64).tolist())

    def test_documents_of_flat_and_indexed_files(self):
        source = random.Random(SEED + 2)
        for case in range(30):
            documents = [[source.randrange(1, 300) for _ in range(source.randrange(0, 12))] + [0] for _ in range(source.randrange(1, 9))]
            length, stride = source.randrange(1, 6), source.randrange(1, 6)
            code, dtype = source.choice([(8, "<u2"), (4, "<i4"), (5, "<i8"), (3, "<i2")])
            windows = []
            for document in documents:
                windows += [(document[i : i + length], document[i + 1 : i + length + 1]) for i in range(0, len(document) - length, stride)]
            flat, prefix = self.folder / f"{case}.bin", self.folder / f"{case}m"
            whole = [token for document in documents for token in document]
            numpy.array(whole, dtype="<u2").tofile(flat)
            numpy.array(whole, dtype=dtype).tofile(f"{prefix}.bin")
            write_index(f"{prefix}.idx", code, numpy.dtype(dtype).itemsize, documents, source)
            indices = " ".join(str(i) for i in range(len(windows)))
            lines = [f"tokens {flat} {length} {stride} 0 0 {indices}", f"tokens {prefix}.idx {length} {stride} 0 -1 {indices}"]
            for answer in self.run_program(lines):
                if not windows:
                    self.assertIn("are too few for a window", answer)
                    continue
                self.assertEqual(answer.split()[:3], [str(len(windows)), str(len(whole)), str(len(documents))])
                self.assertEqual([int(word) for word in answer.split()[3:]], [token for pair in windows for part in pair for token in part])


def write_index(file, code, item, documents, source):
    """As Megatron-LM's _IndexWriter; a document may have several sequences."""
    lengths, begins = [], [0]
    for document in documents:
        cut = source.randrange(len(document) + 1)
        lengths += [len(document)] if source.random() < 0.5 else [cut, len(document) - cut]
        begins.append(len(lengths))
    pointers = [item * sum(lengths[:i]) for i in range(len(lengths))]
    with open(file, "wb") as stream:
        stream.write(b"MMIDIDX\x00\x00" + struct.pack("<Q", 1) + struct.pack("<B", code))
        stream.write(struct.pack("<QQ", len(lengths), len(begins)))
        stream.write(numpy.array(lengths, dtype="<i4").tobytes() + numpy.array(pointers, dtype="<i8").tobytes())
        stream.write(numpy.array(begins, dtype="<i8").tobytes())


unittest.main()
