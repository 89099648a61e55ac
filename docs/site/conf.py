"""Sphinx's settings for the pages that scripts/docs stages; read from docs/site."""

import pathlib
import re

from pygments.lexer import inherit
from pygments.lexers.c_cpp import CppLexer
from pygments.token import Punctuation

ROOT = pathlib.Path(__file__).resolve().parents[2]

project = "ddprun"
author = copyright = "the ddprun authors"
release = re.search(r'DDPRUN_VERSION_STRING "(.*)"', (ROOT / "include/ddprun/version.h").read_text())[1]

ADDRESSES = dict(re.findall(r'set\((\w+) "(.*)"\)', (ROOT / "cmake/ProjectAddresses.cmake").read_text()))

extensions = ["myst_parser"]
myst_heading_anchors = 4
primary_domain = "cpp"
highlight_language = "text"
cpp_index_common_prefix = ["ddp::", "ddp::horovod::", "ddp::schedules::", "ddp::nn::", "ddp::optim::", "ddp::amp::"]
maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"ddprun {release}"
html_static_path = [str(ROOT / "docs/site/static")]
html_css_files = ["pages.css"]
html_favicon = str(ROOT / "docs/site/static/icon.svg")
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "navigation_with_keys": True,
    "top_of_page_buttons": [],
    "footer_icons": [{"name": name, "url": ADDRESSES[key], "html": name, "class": ""} for name, key in [("Repository", "DDPRUN_REPOSITORY"), ("Issues", "DDPRUN_ISSUES")]],
}  # fmt: skip


class CppWithDots(CppLexer):
    """C++ in which … stands for what is left out."""

    tokens = {"statements": [("…", Punctuation), inherit]}


def setup(app):
    app.add_lexer("cpp", CppWithDots)
