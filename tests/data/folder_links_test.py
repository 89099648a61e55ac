"""Image folders with links of every kind, against torchvision. Skipped without it."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

if not importlib.util.find_spec("torchvision"):
    print("skipped: this Python has no torchvision")
    sys.exit(77)

from torchvision.datasets.folder import IMG_EXTENSIONS, find_classes, make_dataset


class FolderLinks(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.root = self.folder / "root"

    def add(self, *names):
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")

    def link(self, name, target):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def ours(self):
        done = subprocess.run([os.environ["PROGRAM"], f"list={self.root}"], capture_output=True, check=True, text=True, timeout=100)
        return [(int(label), name) for label, name in (line.split(" ", 1) for line in done.stdout.splitlines())], done.stderr

    def torchvisions(self):
        _, classes = find_classes(self.root)
        samples = make_dataset(self.root, classes, IMG_EXTENSIONS)
        return [(label, os.path.relpath(path, self.root)) for path, label in samples]

    def test_the_same_files_in_the_same_order(self):
        self.add("root/a/1.jpg", "root/a/b-/2.png", "root/a/b/3.png", "root/d/4.PPM", "root/d/.hidden.jpg")
        self.add("store/more/5.jpg", "store/more/deep/6.webp", "store/7.bmp", "store/text.txt", "store/folder.jpg/8.jpg")
        self.link("root/a/linked", self.folder / "store/more")
        self.link("root/a/linked-", "../../store/more")
        self.link("root/a/0.jpg", self.folder / "store/7.bmp")
        self.link("root/c", "../store")
        self.link("root/d/chain", self.folder / "root/a/linked")
        self.link("root/d/class-c", "../c")
        listed, said = self.ours()
        self.assertEqual(listed, self.torchvisions())
        self.assertEqual(said, "")
        self.assertIn((1, "c/folder.jpg/8.jpg"), listed)

    def test_what_points_to_nothing_is_left_out_and_said(self):
        # torchvision lists the picture, and fails when it is read; a class that points to nothing is not a class there either.
        self.add("root/a/1.jpg", "root/b/2.jpg")
        self.link("root/a/0.jpg", self.folder / "none")
        self.link("root/b/folder", self.folder / "none")
        self.link("root/aa", self.folder / "none")
        listed, said = self.ours()
        self.assertEqual([entry for entry in self.torchvisions() if entry[1] != "a/0.jpg"], listed)
        self.assertEqual(said.count("\n"), 1)
        self.assertIn("3 links skipped, such as a/0.jpg", said)

    def test_a_circle_ends(self):
        # torchvision goes around until the system refuses: the same picture some forty times.
        self.add("root/a/1.jpg", "root/a/in/2.jpg")
        self.link("root/a/in/up", "..")
        listed, said = self.ours()
        self.assertEqual(listed, [(0, "a/1.jpg"), (0, "a/in/2.jpg")])
        self.assertIn("1 link to a folder skipped, such as a/in/up", said)

    def test_links_to_what_contains_them_are_left_out(self):
        self.add("root/a/1.jpg", "root/b/2.jpg", "store/3.jpg", "store/in/4.jpg", "other/5.jpg")
        self.link("root/a/parent", "..")
        self.link("root/a/above", self.folder)
        self.link("root/all", ".")
        self.link("root/b/store", "../../store/in")
        self.link("store/in/up", "..")
        self.link("root/b/other", self.folder / "other")
        self.link("other/back", self.root)
        listed, said = self.ours()
        self.assertEqual(listed, [(0, "a/1.jpg"), (1, "b/2.jpg"), (1, "b/other/5.jpg"), (1, "b/store/4.jpg")])
        self.assertEqual(said.count("\n"), 1)
        self.assertIn("5 links to folders skipped, such as a/above: it points to a folder that contains it", said)

    def test_names_as_torchvision_takes_them(self):
        self.add("root/a/.png", "root/a/..JPG", "root/a/x.tar.png", "root/a/png", "root/a/xpng", "root/a/x.png.", "root/a/x.png/.webp")
        self.assertEqual(self.ours()[0], self.torchvisions())


if __name__ == "__main__":
    unittest.main(verbosity=1)
