"""scripts/package makes the same bytes in two folders of different names, without a compiler cache."""

import hashlib
import os
import shutil
import unittest

import support


class Reproducible(unittest.TestCase):
    def copied_to(self, name):
        """A copy of the sources below a folder of that name."""
        project = support.WORK / name / "project"
        shutil.rmtree(support.WORK / name, ignore_errors=True)
        listed = support.run("git", "-C", support.SOURCE, "ls-files", "-z").stdout.split("\0")
        for file in filter(None, listed):
            if (support.SOURCE / file).is_file():
                (project / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(support.SOURCE / file, project / file)
        return project

    def made_by(self, project):
        """{file: its checksum} of the packages that these sources make."""
        out = project.parent / "packages"
        variables = {"DDPRUN_TORCH": os.environ["LIBTORCH_VERSION"], "SOURCE_DATE_EPOCH": "1700000000", "CCACHE_DISABLE": "1"}
        support.run(project / "scripts/package", out, env={**os.environ, **variables})
        made = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in out.iterdir()}
        shutil.rmtree(project)
        return made

    def test_two_folders_of_different_names_give_the_same_bytes(self):
        projects = [self.copied_to(name) for name in ("a", "another-folder/further/down")]
        first, second = [self.made_by(project) for project in projects]
        self.assertEqual(len(first), 3)
        self.assertEqual(first, second)


support.main()
