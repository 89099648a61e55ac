"""The letters of each picture of the pages are large enough to be read where the picture has its own size, which the site keeps (site_test.py)."""

import os
import pathlib
import re
import unittest
import xml.etree.ElementTree as ET

DOCS = pathlib.Path(os.environ["PROJECT_SOURCE"]) / "docs"
SMALLEST = 11  # pixels


def sizes(element, size: float, scale: float):
    """The sizes of all texts of a picture, as shown."""
    size = float(element.get("font-size", size))
    if match := re.match(r"scale\(([\d.]+)", element.get("transform", "")):
        scale *= float(match[1])
    if element.tag.endswith(("}text", "}tspan")) and "".join(element.itertext()).strip():
        yield size * scale
    for child in element:
        yield from sizes(child, size, scale)


class Pictures(unittest.TestCase):
    def test_letters_can_be_read(self):
        pictures = sorted(DOCS.glob("*.svg"))
        self.assertGreater(len(pictures), 10)
        for picture in pictures:
            with self.subTest(picture=picture.name):
                root = ET.parse(picture).getroot()
                width, units = float(root.get("width")), float(root.get("viewBox").split()[2])
                self.assertGreaterEqual(min(sizes(root, 16, width / units)), SMALLEST)

    def test_small_letters_are_noticed(self):
        root = ET.fromstring('<svg xmlns="http://www.w3.org/2000/svg" font-size="20"><g transform="scale(0.5)"><text>a</text><text font-size="30">b</text></g></svg>')
        self.assertEqual(list(sizes(root, 16, 1.0)), [10, 15])


if __name__ == "__main__":
    unittest.main(verbosity=2)
