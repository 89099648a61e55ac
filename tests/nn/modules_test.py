"""LibTorch's modules, functions and optimizers, and the library's own, beside Python's: the same initial values, outputs, gradients,
buffers and random numbers to the last bit, but for those that docs/nn.md names.

    modules_test.py PROGRAM            runs the test
    modules_test.py PROGRAM --write    writes the table of docs/nn.md
"""

import collections
import dataclasses
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch

import modules_cases
from modules_cases import CASES, CIRCUMSTANCES, DROP_INS

PROGRAM = sys.argv.pop(1)
PAGE = pathlib.Path(__file__).parents[2] / "docs/nn.md"
TABLE = re.compile(r"(?<=<!-- compared: torch-nn -->\n).*?(?=<!-- end -->)", re.DOTALL)

# What is known to differ: the first word of a subject, what differs, and what to use instead.
KNOWN = {
    "Linear": ("inputs that are not matrices; gradients of a layer that is used twice under autocast", "`ddp::nn::Linear`"),
    "functional.linear": ("inputs that are not matrices", "`torch::linear`"),
    "MultiheadAttention": (
        "all; refuses inputs without a batch, `kdim` ≠ `vdim`, masks of each head, and `key_padding_mask` in 16 bits",
        "`ddp::nn::MultiheadAttention`"),
    "MultiheadAttention, attn_mask of bool": ("**adds 0 and 1 to the scores and hides nothing**", "the same"),
    "TransformerEncoderLayer, mask of bool": ("**the same**", "`ddp::nn::TransformerEncoderLayer`"),
    "TransformerEncoderLayer": ("all", "`ddp::nn::TransformerEncoderLayer`"),
    "TransformerDecoderLayer": ("all", "`ddp::nn::TransformerDecoderLayer`"),
    "TransformerEncoder": ("all; its construction draws random numbers that Python's does not", "`ddp::nn::TransformerEncoder`"),
    "TransformerDecoder": ("the same", "`ddp::nn::TransformerDecoder`"),
    "Transformer": ("all, the initial values too", "`ddp::nn::Transformer`"),
    "BatchNorm1d": ("`num_batches_tracked` after `to(dtype)`", "[`ddp::nn::to_dtype`](#counters-of-batch-norms)"),
    "BatchNorm2d": ("the same", "the same"),
    "BatchNorm3d": ("the same", "the same"),
    "InstanceNorm2d": ("the same", "the same"),
    "AdaptiveLogSoftmaxWithLoss": ("the initial values of `tail`; its `loss` is a number without a gradient",
                                   "`-output.mean()` as loss; Python's weights from a file"),
    "TripletMarginWithDistanceLoss": ("the order of two sums", "`torch::clamp_min(margin + positive - negative, 0).mean()`"),
    "RNN": ("refuses inputs without a batch", "`unsqueeze(1)`"),
    "LSTM": ("the same", "the same"),
    "GRU": ("the same", "the same"),
    "init.orthogonal_": ("float64: draws and computes in float32", "call it before `to(torch::kDouble)`"),
    "optim.SGD": ("momentum with 16-bit weights", "`ddp::optim::SGD`"),
    "optim.Adam": ("all", "`ddp::optim::Adam`, which has the bits of Python's `fused=True`"),
    "optim.AdamW": ("all", "`ddp::optim::AdamW`, the same"),
    "optim.RMSprop": ("`centered`; 16-bit weights", "–"),
    "optim.LBFGS": ("`strong_wolfe`, whose line search takes other steps; 16-bit weights", "–"),
}  # fmt: skip
DTYPES = ("float32", "float64", "bfloat16", "autocast")


@dataclasses.dataclass
class Difference:
    kind: str  # "refused", "initial values", "names", "dtype", "random numbers", "values"
    text: str
    size: float = 0.0  # the largest difference as a share of the largest value


def same_bits(one, other):
    # A tensor of one element may keep the stride of what it was cut from, which view() refuses.
    one, other = (tensor.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8) for tensor in (one, other))
    return torch.equal(one, other)


def difference(name, expected, actual):
    """None for the same bits."""
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return Difference("dtype", f"{name} is {actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}")
    if same_bits(expected, actual):
        return None
    if name.startswith("generator"):
        return Difference("random numbers", f"{name} is in another state")
    largest = expected.double().abs().nan_to_num(0, 0, 0).max().item() or 1.0
    size = (expected.double() - actual.double()).abs().nan_to_num(float("inf")).max().item() / largest
    return Difference("initial values" if name.startswith("initial") else "values", f"{name} differs by {size:.1e}", size)


def differences(expected, actual):
    if isinstance(actual, str):
        return [Difference("refused", actual.splitlines()[0])]
    if list(expected) != list(actual):
        return [Difference("names", f"{list(actual)} instead of {list(expected)}")]
    found = (difference(name, tensor, actual[name]) for name, tensor in expected.items())
    return [each for each in found if each is not None]


def compare(cases):
    """[(case, circumstance, differences)] of each run that Python makes."""
    torch.set_num_threads(1)
    runs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases:
            runs += [(case, circumstance, *modules_cases.run(case, circumstance)) for circumstance in CIRCUMSTANCES]
    runs = [run for run in runs if run[2] is not None]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        torch.save([needed for _, _, needed, _ in runs], folder / "cases.pt")
        done = subprocess.run([PROGRAM, folder / "cases.pt", folder / "results.pt"], env=dict(os.environ, OMP_NUM_THREADS="1"),
                              stderr=subprocess.PIPE, text=True)  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{PROGRAM} ended with {done.returncode}: {done.stderr[-2000:]}")
        results = torch.load(folder / "results.pt", weights_only=False)
    return [(case, circumstance, differences(expected, actual)) for (case, circumstance, _, expected), actual in zip(runs, results, strict=True)]


def word_of(case):
    word = case.subject.split(",")[0]
    if case.shape == "bool":
        word += {"MultiheadAttention": ", attn_mask of bool", "TransformerEncoderLayer": ", mask of bool"}[word]
    return word


def table():
    """The rows of what differs, in the order of KNOWN."""
    sizes = collections.defaultdict(dict)
    for case, circumstance, found in compare(CASES):
        for each in found:
            column = circumstance.split(",")[0]
            if each.kind == "values":
                sizes[word_of(case)][column] = max(sizes[word_of(case)].get(column, 0.0), each.size)
            else:
                sizes[word_of(case)].setdefault("", None)
    rows = []
    for word, (what, instead) in KNOWN.items():
        if word in sizes:
            cells = [f"{sizes[word][column]:.0e}" if column in sizes[word] else "" for column in DTYPES]
            rows.append(f"| `{word}` | {what} | {' | '.join(cells)} | {instead} |\n")
    return "| LibTorch's | differs in | " + " | ".join(DTYPES) + " | use |\n|---|---|---|---|---|---|---|\n" + "".join(rows)


class Modules(unittest.TestCase):
    def test_the_librarys_own_have_every_bit_of_pythons(self):
        runs = compare(DROP_INS)
        self.assertGreater(len(runs), len(DROP_INS))
        for case, circumstance, found in runs:
            with self.subTest(case=case.name, circumstance=circumstance):
                self.assertEqual([each.text for each in found], [])

    def test_so_have_they_with_options_and_sizes_at_random(self):
        seed = int(os.environ.get("DDPRUN_TEST_SEED", "20"))
        generator = random.Random(seed)
        runs = compare([modules_cases.random_case(generator) for _ in range(60)])
        self.assertGreater(len(runs), 60 * 5)  # Python refuses few
        for case, circumstance, found in runs:
            with self.subTest(seed=seed, case=case.name, circumstance=circumstance):
                self.assertEqual([each.text for each in found], [])

    def test_libtorchs_have_them_but_for_those_that_the_page_names(self):
        page = PAGE.read_text()
        runs = compare(CASES)
        self.assertGreater(len(runs), len(CASES))
        for case, circumstance, found in runs:
            if found and word_of(case) in KNOWN:
                self.assertIn(f"| `{word_of(case)}` |", page)
                continue
            with self.subTest(case=case.name, circumstance=circumstance):
                self.assertEqual([each.text for each in found], [])

    def test_the_comparison_notices_what_differs(self):
        found = {word_of(case) for case, _, found in compare(CASES) if found}
        self.assertLessEqual({"Linear", "MultiheadAttention", "TransformerEncoderLayer", "Transformer"}, found)
        self.assertIn("MultiheadAttention, attn_mask of bool", found)

    def test_each_case_depends_on_its_input(self):
        # Otherwise equal bits would say nothing.
        for case in DROP_INS:
            with self.subTest(case=case.name):
                _, one = modules_cases.run(case, "float32, eval")
                _, other = modules_cases.run(dataclasses.replace(case, shape=case.shape + " again"), "float32, eval")
                self.assertFalse(same_bits(one["output 0"], other["output 0"]))


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text()))
    else:
        unittest.main()
