"""Whose code is in the binaries of a build: by what the compiler and the linker have read for them, the packages that it is from."""

import functools
import os
import pathlib
import re
import shlex
import subprocess
import tempfile

# Nothing but numbers and layouts of the kernel's interface; its licence says that programs which use them are not derived from it.
NO_CODE = {"linux-libc-dev"}


def printed(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True, **options).stdout


class Build:
    """A build folder of ninja's, in which everything is built."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.source = pathlib.Path(re.search(r"CMAKE_HOME_DIRECTORY:INTERNAL=(.*)", (self.folder / "CMakeCache.txt").read_text())[1])

    def ninja(self, *words):
        return printed("ninja", "-C", self.folder, "-t", *words)

    def is_own(self, file):
        return any(pathlib.Path(file).is_relative_to(folder) for folder in (self.source, self.folder.resolve(), self.folder))

    def headers(self, product):
        """What its objects and their precompiled headers include."""
        compiled = [name for name in self.ninja("inputs", product).splitlines() if name.endswith((".o", ".gch"))]
        found = set()
        for line in self.ninja("deps", *compiled).splitlines() if compiled else ():
            if line.startswith("    "):
                found.add(os.path.normpath(self.folder / line.strip()))
        return found

    def linked(self, product):
        """The archives and objects that its linker reads, or that are merged into it."""
        command = self.ninja("commands", "-s", product).strip()
        merged = re.search(r"ARCHIVES=([^\"']+\.a)", command)
        if merged:
            return set(merged[1].split(";"))
        if product.endswith(".a"):
            return set()
        link = next(part for part in command.split("&&") if f"-o {product}" in part)
        words = shlex.split(link)
        with tempfile.TemporaryDirectory() as folder:
            words[words.index("-o") + 1] = f"{folder}/linked"
            traced = printed(*words, "-Wl,--trace", cwd=self.folder)
        files = (os.path.normpath(self.folder / re.sub(r"\(.*|^.*?: (?=/)", "", line)) for line in traced.splitlines())
        return {file for file in files if file.endswith((".a", ".o"))}

    def owners(self, products):
        """{name of the notice: a file that is read} for what is from elsewhere."""
        files = set()
        for product in products:
            files |= self.headers(product) | self.linked(product)
        foreign = sorted({os.path.realpath(file) for file in files if not self.is_own(file)})
        packages = debian_packages([file for file in foreign if file.startswith("/usr/") and not file.startswith("/usr/local/")])
        found = {}
        for file in foreign:
            if packages.get(file) not in NO_CODE:
                found[debian_notice(packages[file]) if file in packages else owner(file)] = file
        return found


def debian_packages(files):
    """{file: the Debian package that it is of}."""
    if not files:
        return {}
    found = subprocess.run(["dpkg-query", "-S", *files], capture_output=True, text=True, check=False).stdout
    lines = (line.split(": ", 1) for line in found.splitlines() if not line.startswith("diversion "))
    return {file: packages.split(",")[0].split(":")[0] for packages, file in lines}


def debian_notice(package):
    return pathlib.Path(f"/usr/share/doc/{package}/copyright").resolve(strict=True).parent.name


@functools.cache
def records_at(folder):
    """{file: the Python package that it is of} for what pip has installed here; of a CUDA toolkit that is made of such packages from "include" on."""
    found = {}
    for record in sorted([*folder.glob("*.dist-info/RECORD"), *folder.glob("dist-info/*.dist-info/RECORD")]):
        name = record.parent.name.split("-")[0]
        for line in record.read_text().splitlines():
            file = line.rsplit(",", 2)[0]
            found[file] = name
            if record.parent.parent.name == "dist-info" and "/include/" in file:
                found["include/" + file.split("/include/", 1)[1]] = name
    return found


@functools.cache
def licence_of(folder):
    return re.sub(r"-[0-9].*", "", folder.name) if any(folder.glob("LICEN[CS]E*")) else ""


def owner(file):
    """The name that the notice of this file's package has in DDPRUN_NOTICES; fails where nobody is known."""
    for folder in pathlib.Path(file).parents:
        found = records_at(folder).get(os.path.relpath(file, folder)) or licence_of(folder)
        if found:
            return found
    raise AssertionError(f"{file}: compiled or linked into a package, and of no package whose licence is known")
