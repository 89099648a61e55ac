"""docs/gallery.md is what scripts/gallery writes: its commands, its pictures, and how it reads a terminal. The runs
themselves take minutes, and are scripts/gallery's."""

import importlib.machinery
import importlib.util
import pathlib
import re
import unittest
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LOADER = importlib.machinery.SourceFileLoader("gallery", str(ROOT / "scripts/gallery"))
gallery = importlib.util.module_from_spec(importlib.util.spec_from_loader("gallery", LOADER))
LOADER.exec_module(gallery)


def shown(text):
    screen = gallery.Screen()
    screen.write(text)
    return screen.shown()


class Gallery(unittest.TestCase):
    def test_a_terminal_shows_what_was_written_last(self):
        self.assertEqual(shown("one\r\ntwo\r\n"), ["one", "two"])
        self.assertEqual(shown("50%\r100%"), ["100%"])
        self.assertEqual(shown("100%\rup\x1b[K"), ["up"])
        self.assertEqual(shown("bar 0\r\nbar 1\r\n\x1b[2A\x1b[Jdone\r\nbar 0"), ["done", "bar 0"])
        self.assertEqual(shown("\x1b[32mgreen\x1b[0m \x1b[?25l\u2588"), ["green \u2588"])

    def test_a_picture_holds_the_lines_as_text(self):
        picture = gallery.as_svg("train <x>", ["a  b", "c&d"])
        texts = [node.firstChild.data for node in xml.dom.minidom.parseString(picture).getElementsByTagName("text")]
        self.assertEqual(texts, ["$ train <x>", "a  b", "c&d"])

    def test_the_pages_commands_are_the_scripts_and_its_pictures_are_there(self):
        page = (ROOT / "docs/gallery.md").read_text()
        self.assertEqual(re.findall(r"^\$ (.*)$", page, re.MULTILINE), [*gallery.CURVES, *gallery.TIMELINE])
        pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", page)
        self.assertEqual(len(pictures), 4)
        for picture in pictures:
            xml.dom.minidom.parse(str(ROOT / "docs" / picture))


if __name__ == "__main__":
    unittest.main()
