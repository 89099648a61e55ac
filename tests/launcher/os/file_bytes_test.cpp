#include "launcher/os/system/file_bytes.h"

#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/temporary_folder.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

class FileBytesTest {
 protected:
  FileBytesTest() { folder.make(); }
  TemporaryFolder folder;
  std::string path = folder.path() + "/file";
};

TEST_CASE_METHOD(FileBytesTest, "FileBytes: a file is read whole, and is not changed") {
  const std::string text = std::string(10'000, 'a') + '\0' + "\n";
  std::ofstream(path, std::ios::binary) << text;
  CHECK(file_bytes("--option", path, 1 << 20) == text);
}

TEST_CASE_METHOD(FileBytesTest, "FileBytes: one that is too large, or has no end, is refused") {
  CHECK_THROWS_MATCHES(file_bytes("--option", "/dev/zero", 5000), LaunchError,
                       MessageMatches(ContainsSubstring("--option /dev/zero: it has more than 5000 bytes")));
}

TEST_CASE_METHOD(FileBytesTest, "FileBytes: a pipe to which nobody writes holds nothing up") {
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(file_bytes("--option", path, 5000).empty());
}

TEST_CASE_METHOD(FileBytesTest, "FileBytes: what is not there is named") {
  CHECK_THROWS_MATCHES(file_bytes("--option", path, 5000), LaunchError,
                       MessageMatches(ContainsSubstring("--option " + path + ": No such file or directory")));
}

}  // namespace
}  // namespace launcher
