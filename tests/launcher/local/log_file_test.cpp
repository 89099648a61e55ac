#include "launcher/local/output/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <string>

#include "launcher/os/system/launch_error.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using Catch::Matchers::StartsWith;
using ddp::test::read_file;

TEST_CASE("LogFile: folders are made with those above, and may be there already") {
  const ddp::test::TemporaryFolder folder;
  make_folder(folder / "a/b/c", "--log_dir");
  make_folder(folder / "a/b/c", "--log_dir");
  CHECK(std::filesystem::is_directory(folder / "a/b/c"));
}

TEST_CASE("LogFile: a folder that cannot be made names the option, the folder and why") {
  const ddp::test::TemporaryFolder folder;
  ddp::test::write_file(folder / "file", "");
  const std::string path = folder / "file/below";
  CHECK_THROWS_WITH(make_folder(path, "--log_dir"), "--log_dir: cannot create the folder " + path +
                                                        ": Not a directory; choose a folder in which you can write");
  CHECK_THROWS_WITH(
      make_unique_folder(folder / "missing", "run", "TMPDIR"),
      "TMPDIR: cannot create a folder in " + (folder / "missing").string() + ": No such file or directory");
}

TEST_CASE("LogFile: unique folders are new ones of our own below the parent, whatever the name") {
  const ddp::test::TemporaryFolder folder;
  const std::string parent = folder.path();
  std::set<std::string> paths;
  for (const std::string name : {"run", "run", "../../etc/x", "..", "", "a b\n\xff"}) {
    const std::string path = make_unique_folder(parent, name, "--log_dir");
    CHECK(paths.insert(path).second);
    CHECK(std::filesystem::path(path).parent_path() == parent);
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0700);
  }
  CHECK_THROWS_AS(make_unique_folder(parent, std::string(300, 'x'), "--rdzv_id"), LaunchError);
}

TEST_CASE("LogFile: is emptied, or kept and written at its end") {
  const ddp::test::TemporaryFolder folder;
  const std::string path = folder / "stdout.log";
  const auto write = [&](bool keep, const std::string& text) {
    LogFile file(path, open_log_file(path, keep));
    file.write(text);
    CHECK(file.error() == 0);
  };
  write(false, "one\n");
  write(true, "two\n");
  CHECK(read_file(path) == "one\ntwo\n");
  write(false, "three\n");
  CHECK(read_file(path) == "three\n");
}

TEST_CASE("LogFile: two who write one file do not overwrite each other") {
  const ddp::test::TemporaryFolder folder;
  const std::string path = folder / "stdout.log";
  LogFile first(path, open_log_file(path, false));
  LogFile second(path, open_log_file(path, true));
  first.write("a");
  second.write("b");
  first.write("c");
  CHECK(read_file(path) == "abc");
}

TEST_CASE("LogFile: one that cannot be opened is named") {
  const ddp::test::TemporaryFolder folder;
  CHECK_THROWS_WITH(open_log_file(folder.path(), false),
                    "cannot write the log file " + folder.path().string() + ": Is a directory");
  CHECK_THROWS_WITH(open_log_file(folder / "a/b", true),
                    "cannot write the log file " + (folder / "a/b").string() + ": No such file or directory");
}

TEST_CASE("LogFile: after a failure nothing is written any more") {
  const ddp::test::TemporaryFolder folder;
  LogFile file("/dev/full", open_log_file("/dev/full", true));
  file.write("");
  CHECK(file.error() == 0);
  file.write("text");
  CHECK(file.error() == ENOSPC);
  file.descriptor() = open_log_file(folder / "other", false);
  file.write("more");
  CHECK(read_file(folder / "other") == "");
  CHECK(file.error() == ENOSPC);
}

TEST_CASE("LogFile: where there is space there is none of these errors, and nothing is left of the look") {
  const ddp::test::TemporaryFolder folder;
  CHECK(no_space_error(folder.path()) == 0);
  CHECK(folder.is_empty());
  CHECK(no_space_error(folder / "missing") == 0);  // another trouble, which others tell
  CHECK_FALSE(is_disk_full(folder.path()));
  CHECK_FALSE(is_disk_full("/proc"));  // a file system without blocks is not full
  CHECK_FALSE(is_disk_full(folder / "missing"));
}

TEST_CASE("LineFilter: copies the lines with one of the texts, once each, with an end") {
  const ddp::test::TemporaryFolder folder;
  const std::string path = folder / "filtered_stdout.log";
  LineFilter filter({"error", "loss"}, LogFile(path, open_log_file(path, false)));
  filter.add("an error of loss\nnothing\n\nloss 1");
  filter.add("err");
  filter.add("or\nError\nerror\n");
  filter.add("");
  CHECK(read_file(path) == "an error of loss\nloss 1\nerror\n");
}

TEST_CASE("LineFilter: without texts nothing is copied; any bytes are looked at") {
  const ddp::test::TemporaryFolder folder;
  const std::string path = folder / "filtered";
  LineFilter none({}, LogFile(path, open_log_file(path, false)));
  none.add("text\n");
  CHECK(read_file(path) == "");
  LineFilter odd({std::string("\0\xff", 2)}, LogFile(path, open_log_file(path, false)));
  odd.add(std::string("a\0\xff\n\xff\n", 6));
  CHECK(read_file(path) == std::string("a\0\xff\n", 4));
}

}  // namespace
}  // namespace launcher
