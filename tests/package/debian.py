"""What must be true of the launcher's Debian package."""

import os
import pathlib
import re
import shutil

import notices
import support

FILES = [
    "usr/bin/ddprun", "usr/bin/ddprun-timeline", "usr/share/bash-completion/completions/ddprun", "usr/share/doc/ddprun/changelog.gz",
    "usr/share/doc/ddprun/copyright", "usr/share/fish/vendor_completions.d/ddprun.fish", "usr/share/man/man1/ddprun.1.gz",
    "usr/share/zsh/vendor-completions/_ddprun"]  # fmt: skip


def words(text):
    return re.sub(r"\s+", " ", text)


class DebianPackage:
    """For tests of it: a mixin of unittest.TestCase."""

    def unpacked(self, package, root):
        shutil.rmtree(root, ignore_errors=True)
        support.run("dpkg-deb", "-x", package, root)
        return root

    def check_content(self, package, root, environment):
        """It is the launcher and the program for its timelines, which need the C library alone."""
        self.assertRegex(support.run("dpkg-deb", "-f", package, "Depends").stdout, r"^libc6 \(>= [0-9.]+\)$")
        self.assertEqual(sorted(str(path.relative_to(root)) for path in root.glob("**/*") if path.is_file()), FILES)
        for program in ("ddprun", "ddprun-timeline"):
            self.assertNotRegex(support.run("readelf", "-d", root / "usr/bin" / program).stdout, r"NEEDED.*(libstdc|libgcc)|RPATH|RUNPATH")
        printed = support.run(root / "usr/bin/ddprun", "-n", "2", "sh", "-c", "echo $RANK", env=environment).stdout
        self.assertEqual(sorted(printed.splitlines()), ["[0] 0", "[1] 1"])
        self.assertIn("--what-if", support.run(root / "usr/bin/ddprun-timeline", "--help", env=environment).stdout)
        asked = support.run(root / "usr/bin/ddprun", "--cmake-prefix-path", check=False)
        self.assertEqual(asked.returncode, 125)
        if shutil.which("zsh") and os.path.exists("/etc/debian_version"):
            places = support.run("zsh", "-f", "-c", "print -l $fpath").stdout.splitlines()
            self.assertIn("/" + os.path.dirname(FILES[-1]), places)
        if shutil.which("lintian"):
            self.assertEqual(support.run("lintian", "--tag-display-limit", "0", "--fail-on", "error", package, check=False).returncode, 0)

    def check_notices(self, root, build):
        """Its copyright file has the notice of whatever its programs were compiled and linked with."""
        owners = notices.Build(build).owners(["bin/ddprun", "bin/ddprun-timeline"])
        self.assertLessEqual({"libcli11-dev", "nlohmann-json3-dev", "libsodium-dev"}, set(owners))
        text = words((root / "usr/share/doc/ddprun/copyright").read_text())
        for name, file in owners.items():
            self.assertIn(words(pathlib.Path(f"/usr/share/doc/{name}/copyright").read_text()), text, f"for {file}")
