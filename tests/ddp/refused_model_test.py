"""What is no model is refused with a sentence that says what is: `refused_model_test.py BUILD_COMMAND...`."""

import re
import subprocess
import sys
import unittest

COMMAND = sys.argv[1:]


class RefusedModel(unittest.TestCase):
    def test_the_compiler_says_what_a_model_is_before_anything_else(self):
        result = subprocess.run(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        errors = re.findall(r"error: (.*)", result.stdout)
        self.assertIn("one made by TORCH_MODULE, a std::shared_ptr to a module, or a class derived", errors[0])
        self.assertEqual(len(errors), 1, "\n".join(errors))


unittest.main(argv=sys.argv[:1])
