"""scripts/sharded_memory: its formulas, and the table that docs/fully-sharded.md has of it."""

import importlib.machinery
import importlib.util
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/sharded_memory"


def load():
    spec = importlib.util.spec_from_loader("sharded_memory", importlib.machinery.SourceFileLoader("sharded_memory", str(SCRIPT)))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class MemoryTable(unittest.TestCase):
    def test_the_page_has_what_its_command_prints(self):
        page = (ROOT / "docs/fully-sharded.md").read_text()
        command = re.search(r"^scripts/sharded_memory.*$", page, re.MULTILINE)[0].split()
        shown = re.search(r"<!-- sharded memory -->\n(.*?)<!-- end of sharded memory -->", page, re.DOTALL)[1]
        printed = subprocess.run([sys.executable, "-B", SCRIPT, *command[1:]], capture_output=True, text=True, check=True).stdout
        self.assertEqual(shown, printed)

    def test_adamw_in_32_bits_takes_16_bytes_a_parameter_divided_by_the_ranks(self):
        memory = load()
        model = memory.Model(parameters=1000, largest_unit=100, root=10)
        self.assertEqual(memory.replicated(model), 16000)
        self.assertEqual(memory.kept(model, 4), 4000)
        # 210 gathered, 125 arriving, 210 gradients and 125 of them once more.
        self.assertEqual(memory.while_computing(model, 4), 4 * (210 + 125 + 210 + 125))

    def test_sixteen_bits_halve_what_is_gathered_but_not_the_reduction(self):
        memory = load()
        wide, narrow = (memory.Model(1000, 100, 10, gathered_bytes=size) for size in (4, 2))
        self.assertEqual(memory.kept(wide, 2), memory.kept(narrow, 2))
        self.assertEqual(memory.while_computing(narrow, 2), 2 * (210 + 150 + 210) + 4 * 150)


if __name__ == "__main__":
    unittest.main()
