"""What include/ddprun holds is installed and nothing else, and no header of a user's project can be taken for one of ours."""

import shutil
import unittest

import support

SOURCES = support.SOURCE / "include"


class Includes(unittest.TestCase):
    def test_the_headers_of_include_are_installed_and_no_others(self):
        def headers(root):
            return sorted(str(header.relative_to(root)) for header in root.rglob("*.h"))

        self.assertGreater(len(headers(SOURCES)), 100)
        self.assertEqual(headers(support.PREFIX / "include/ddprun"), headers(SOURCES / "ddprun"))
        self.assertEqual([path.name for path in (support.PREFIX / "include").iterdir()], ["ddprun"])

    def test_a_project_may_have_headers_of_the_same_names(self):
        own = support.WORK / "own"
        shutil.rmtree(own, ignore_errors=True)
        for header in (support.PREFIX / "include").glob("ddprun/**/*.h"):
            name = header.relative_to(support.PREFIX / "include").parts[1:]
            mine = own.joinpath(*name)
            mine.parent.mkdir(parents=True, exist_ok=True)
            mine.write_text("#error this header of the user's project was taken for one of ddprun's\n")
        (own / "data/loader.h").write_text("#define OWN_HEADER\n")
        clang = shutil.which("clang++")
        for compiler in [[], *([["-D", f"CMAKE_CXX_COMPILER={clang}"]] if clang else [])]:
            with self.subTest(compiler):
                build = support.WORK / ("build-clang" if compiler else "build")
                support.configure(
                    support.HERE / "includes", build, "-D", "CMAKE_CXX_COMPILER_LAUNCHER=", *compiler,
                    "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}", "-D", f"OWN_HEADERS={own}",
                )  # fmt: skip
                support.run("cmake", "--build", build)
                # Only preprocessed: the object is what the compiler would see.
                for library in ("own_names", "others_names"):
                    [seen] = build.glob(f"CMakeFiles/{library}.dir/*.o")
                    self.assertIn("class SummaryWriter", seen.read_text())


support.main()
