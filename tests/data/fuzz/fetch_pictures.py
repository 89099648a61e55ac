"""fetch_pictures.py FOLDER: gets the test pictures of Pillow, libtiff and libpng as seeds for the fuzz targets, which are not
part of this project. Pillow's come with its source from pip, the others with Debian's sources through apt, where it knows
any. Then

    DDPRUN_FUZZ_SEEDS=FOLDER DDPRUN_FUZZ_ROUNDS=200000 ctest --test-dir build/release -R data.fuzz
"""

import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

ENDINGS = {".png", ".apng", ".jpg", ".jpeg", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".pnm"}
PILLOW = "pillow==12.0.0"
SOURCES = ("tiff", "libpng1.6")


def unpack(archive: pathlib.Path, folder: pathlib.Path) -> int:
    """The pictures in an archive, under the archive's name and their own."""
    count = 0
    folder = folder / archive.name.split(".tar")[0]
    with tarfile.open(archive) as content:
        for member in content:
            name = pathlib.PurePosixPath(member.name)
            if not member.isfile() or name.suffix.lower() not in ENDINGS:
                continue
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{count:04}-{name.name}").write_bytes(content.extractfile(member).read())
            count += 1
    return count


def fetch_pillow(work: pathlib.Path):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", work, PILLOW], check=True)  # fmt: skip


def fetch_debian(work: pathlib.Path):
    """With lists of its own: this machine's sources, as those of source packages."""
    lists = work / "lists"
    parts = work / "parts"
    for folder in (lists / "partial", parts):
        folder.mkdir(parents=True)
    apt = pathlib.Path("/etc/apt")
    for file in (*apt.glob("sources.list"), *apt.glob("sources.list.d/*")):
        content = file.read_text()
        content = re.sub(r"^Types:.*$", "Types: deb-src", content, flags=re.M) if file.suffix == ".sources" else re.sub(r"^deb\s", "deb-src ", content, flags=re.M)  # fmt: skip
        (parts / (file.name if file.parent.name == "sources.list.d" else "main.list")).write_text(content)
    options = ["-o", f"Dir::State::Lists={lists}", "-o", "Dir::Etc::SourceList=-", "-o", f"Dir::Etc::SourceParts={parts}",
               "-o", "APT::Sandbox::User=root", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]  # fmt: skip
    subprocess.run(["apt-get", *options, "-qq", "update"], check=False)
    subprocess.run(["apt-get", *options, "-qq", "source", "--download-only", "--tar-only", *SOURCES], cwd=work, check=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for fetch in (fetch_pillow, fetch_debian):
            try:
                fetch(work)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"passed over: {error}", file=sys.stderr)
        archives = [file for file in sorted(work.glob("*.tar.*")) if file.suffix != ".asc" and ".debian." not in file.name]
        counts = {archive.name: unpack(archive, target) for archive in archives}
    print("\n".join(f"{count} pictures from {name}" for name, count in counts.items()))
    return 0 if any(counts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
