"""What scripts/package makes: its size, what it holds, and that each can be installed where nothing else of ddprun is, and trains."""

import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import unittest
import zipfile

import debian
import notices
import support

VERSION = os.environ["LIBTORCH_VERSION"]
MINOR = ".".join(VERSION.split(".")[:2])
OUT = support.WORK / "packages"
BUILD = support.SOURCE / f"build/package/torch-{VERSION}"  # scripts/package's
MEGABYTE = 10**6
TRAINER = """
import os
import torch
torch.distributed.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(50):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
print("weights sum to %.3f" % sum(p.sum().item() for p in net.parameters()), flush=True)
torch.distributed.destroy_process_group()
# Without taking the interpreter down, in which torch aborts at times: a thread of its own is still there.
os._exit(0)
"""


def only(pattern: str) -> pathlib.Path:
    found = list(OUT.glob(pattern))
    if len(found) != 1:
        raise AssertionError(f"{pattern}: {found}")
    return found[0]


def environment(**variables):
    """This environment without what might lead to another ddprun or LibTorch than the installed ones."""
    hidden = {"CMAKE_PREFIX_PATH", "Torch_DIR", "Torch_ROOT", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "PYTHONPATH"}
    kept = {name: value for name, value in support.without_launcher_variables().items() if name not in hidden}
    return {**kept, "DDPRUN_CACHE": str(support.WORK / "no-such-cache"), **variables}


def with_torch(folder: pathlib.Path):
    """A new virtual environment that has the packages of the LibTorch in use without a copy of them."""
    packages = support.LIBTORCH.parent
    shutil.rmtree(folder, ignore_errors=True)
    support.run(packages.parents[2] / "bin/python", "-m", "venv", folder)
    site = next(folder.glob("lib/python3*/site-packages"))
    for package in packages.iterdir():
        if not (site / package.name).exists():
            (site / package.name).symlink_to(package)
    return folder


class Packages(debian.DebianPackage, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not re.search(r"/venv[^/]*/lib/python3[^/]*/site-packages/torch$", str(support.LIBTORCH)):
            raise unittest.SkipTest("scripts/package takes a LibTorch that scripts/setup has installed")
        shutil.rmtree(OUT, ignore_errors=True)
        support.run(support.SOURCE / "scripts/package", OUT, env={**os.environ, "DDPRUN_TORCH": VERSION})

    def train(self, prefix_path, launcher, name, **variables):
        """Builds the README's program against what is installed, and runs two ranks of it."""
        source, build = support.WORK / f"{name}.cpp", support.WORK / name
        source.write_text(support.readme_program())
        support.configure(support.HERE / "consumer", build, "-D", f"CMAKE_PREFIX_PATH={prefix_path}", "-D", f"README_PROGRAM={source}",
                          env=environment())  # fmt: skip
        support.run("cmake", "--build", build, "--target", "readme_program", "consumer", env=environment())
        for program in ("readme_program", "consumer"):  # the second decodes a picture
            printed = support.run(launcher, "--nproc_per_node=2", build / program, env=environment(**variables)).stdout
            self.assertEqual(len(re.findall(r"rank [01] of 2: ", printed)), 2, printed)
            # The image libraries are inside, under names that meet no other copy.
            symbols = support.run("nm", build / program).stdout
            self.assertEqual(" T ddprun_images_png_" in symbols, program == "consumer")
            self.assertNotRegex(symbols, r" T (png_|inflate$|jpeg_|TIFF)")
            self.assertNotIn("not found", support.run("ldd", build / program, env=environment()).stdout)
        return build

    def test_none_is_large_and_none_names_a_folder_of_this_machine(self):
        self.assertLess(only("*.whl").stat().st_size, 15 * MEGABYTE)
        self.assertLess(only("*.deb").stat().st_size, 2 * MEGABYTE)
        unpacked = support.WORK / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        with zipfile.ZipFile(only("*.whl")) as wheel:
            wheel.extractall(unpacked / "wheel")
        with tarfile.open(only("*.tar.gz")) as archive:
            archive.extractall(unpacked / "archive")
        support.run("dpkg-deb", "-x", only("*.deb"), unpacked / "deb")
        for folder in (support.SOURCE, support.LIBTORCH, support.LIBTORCH.parents[3], pathlib.Path.home()):
            found = support.run("grep", "-rlF", f"{folder}/", unpacked, check=False)
            self.assertEqual(found.stdout, "")

    def test_the_wheel_trains_in_python_and_in_cpp_from_the_environments_bin_folder(self):
        wheel = only(f"ddprun-*+torch{MINOR}-py3-none-manylinux*.whl")
        prefix = with_torch(support.WORK / "environment")
        bin_folder = prefix / "bin"
        support.run(bin_folder / "pip", "install", "--no-index", wheel, env=environment())
        for command in ("ddprun", "ddprun-checkpoint", "ddprun-curves", "ddprun-timeline"):
            support.run(bin_folder / command, "--help", env=environment())
        support.run(bin_folder / "python", "-c", "import ddprun, ddprun_checkpoint; assert ddprun.checkpoint.load is ddprun_checkpoint.load", env=environment())
        script = support.WORK / "train.py"
        script.write_text(TRAINER)
        path = f"{bin_folder}:{os.environ['PATH']}"
        printed = support.run("sh", "-c", f"ddprun --nproc_per_node=2 {script}", env=environment(PATH=path)).stdout
        sums = re.findall(r"^\[[01]\] weights sum to (\S+)", printed, re.MULTILINE)
        self.assertEqual((len(sums), len(set(sums))), (2, 1), printed)

        prefix_path = support.run(bin_folder / "ddprun", "--cmake-prefix-path", env=environment()).stdout.strip()
        self.assertRegex(prefix_path, rf"^{re.escape(str(prefix))};.*/site-packages/torch/share/cmake$")
        self.train(prefix_path, bin_folder / "ddprun", "by_wheel")
        support.run(bin_folder / "pip", "uninstall", "-y", "ddprun", env=environment())
        self.assertEqual([str(path) for path in prefix.glob("**/*ddprun*") if path.is_file()], [])

    def test_the_archive_trains_where_it_is_unpacked(self):
        folder = support.WORK / "by hand"
        shutil.rmtree(folder, ignore_errors=True)
        with tarfile.open(only(f"ddprun-*+torch{MINOR}-linux-*.tar.gz")) as archive:
            archive.extractall(folder)
        prefix, = folder.iterdir()
        build = self.train(f"{prefix};{support.LIBTORCH}", prefix / "bin/ddprun", "by_archive")
        if support.flag("LIBTORCH_HAS_CUDA"):
            # The CUDA part finds LibTorch's other half beside the program's, and knows no place by itself.
            loaded = support.run(build / "readme_program", env=environment(DDPRUN_CUDA="1", LD_DEBUG="files"), check=False).stdout
            self.assertIn(f"calling init: {support.LIBTORCH}/lib/libtorch_cuda.so", loaded)
            self.assertRegex(loaded, r"calling init: .*/libddprun_comm_cuda\.so")

    def test_the_debian_package_is_the_launcher_which_needs_the_c_library_alone(self):
        package = only("*.deb")
        self.check_content(package, self.unpacked(package, support.WORK / "root"), environment())

    def test_each_has_the_notice_of_whatever_is_in_its_binaries(self):
        self.check_notices(self.unpacked(only("*.deb"), support.WORK / "root"), BUILD)
        build = notices.Build(BUILD)
        unpacked = support.WORK / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        with zipfile.ZipFile(only("*.whl")) as wheel:
            wheel.extractall(unpacked / "wheel")
        with tarfile.open(only("*.tar.gz")) as archive:
            archive.extractall(unpacked / "archive")
        built = {pathlib.Path(line.split(":")[0]).name: line.split(":")[0] for line in build.ninja("targets", "all").splitlines()
                 if re.search(r"LINKER|STATIC_LIBRARY", line)}
        for kind in ("wheel", "archive"):
            held = {path.name for path in (unpacked / kind).glob("**/*") if path.is_file()}
            products = [product for name, product in built.items() if name in held]
            self.assertLessEqual({"bin/ddprun", "bin/ddprun-timeline", "bin/ddprun-curves"}, set(products), kind)
            self.assertTrue(any(product.endswith("libddprun_comm.a") for product in products), kind)
            owners = build.owners(products)
            self.assertLessEqual({"libcli11-dev", "libsodium-dev", "libpng-dev", "torch"}, set(owners), kind)
            folder, = (unpacked / kind).glob("**/share/doc/ddprun/notices")
            missing = {name: file for name, file in owners.items() if not (folder / name).is_file()}
            self.assertEqual(missing, {}, kind)


support.main()
