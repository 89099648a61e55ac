#include "launcher/os/system/temporary_folder.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/os/system/host_name.h"
#include "launcher/os/system/process_title.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

namespace fs = std::filesystem;

class TemporaryFolderTest {
 protected:
  TemporaryFolderTest() {
    if (const char* value = ::getenv("TMPDIR")) before_ = value;
    ::setenv("TMPDIR", folder_.path().c_str(), 1);
  }
  ~TemporaryFolderTest() {
    if (before_) {
      ::setenv("TMPDIR", before_->c_str(), 1);
    } else {
      ::unsetenv("TMPDIR");
    }
  }
  ddp::test::TemporaryFolder folder_;
  std::optional<std::string> before_;
};

TEST_CASE_METHOD(TemporaryFolderTest,
                 "TemporaryFolder: is there from make() on, for its owner alone, and goes with the object") {
  std::string path;
  {
    const TemporaryFolder temporary;
    path = temporary.path();
    CHECK(fs::path(path).parent_path() == folder_.path());
    CHECK_FALSE(fs::exists(path));
    temporary.make();
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0700);
    fs::create_directories(path + "/a/b");
    ddp::test::write_file(path + "/a/b/file", "text");
    fs::create_directory_symlink(folder_.path(), path + "/up");
  }
  CHECK(fs::exists(folder_.path()));
  CHECK(folder_.is_empty());
}

TEST_CASE_METHOD(TemporaryFolderTest, "TemporaryFolder: names are never chosen twice, and a taken one is refused") {
  std::set<std::string> paths;
  for (int i = 0; i < 1'000; ++i) CHECK(paths.insert(TemporaryFolder().path()).second);
  const TemporaryFolder temporary;
  temporary.make();
  CHECK_THROWS_WITH(temporary.make(),
                    "cannot create the folder " + temporary.path() +
                        " for error files: File exists; set TMPDIR to a folder in which you can write");
}

TEST_CASE_METHOD(TemporaryFolderTest, "TemporaryFolder: one that was never made, or is gone already, is not an error") {
  { const TemporaryFolder never; }
  {
    const TemporaryFolder gone;
    gone.make();
    fs::remove_all(gone.path());
  }
  CHECK(folder_.is_empty());
}

TEST_CASE_METHOD(TemporaryFolderTest,
                 "TemporaryFolder: without a place of the user's it is in /tmp; a relative place is made absolute") {
  ::setenv("TMPDIR", "", 1);
  CHECK(TemporaryFolder().path().starts_with("/tmp/ddprun_"));
  ::unsetenv("TMPDIR");
  CHECK(TemporaryFolder().path().starts_with("/tmp/ddprun_"));
  ::setenv("TMPDIR", "some/place", 1);
  CHECK(TemporaryFolder().path().starts_with((fs::current_path() / "some/place/ddprun_").string()));
}

TEST_CASE("RandomId: 32 hexadecimal digits, never the same") {
  std::set<std::string> ids;
  for (int i = 0; i < 1'000; ++i) {
    const std::string id = random_id();
    REQUIRE(id.size() == 32);
    REQUIRE(id.find_first_not_of("0123456789abcdef") == std::string::npos);
    REQUIRE(ids.insert(id).second);
  }
}

TEST_CASE("HostName: is one word") {
  CHECK(host_name() != "");
  CHECK(host_name().find_first_of(" \n") == std::string::npos);
}

std::string short_name() {
  std::array<char, 17> name{};
  ::prctl(PR_GET_NAME, name.data());
  return name.data();
}

// Arguments one behind the other, as the kernel puts them, and something behind them.
class Arguments {
 public:
  explicit Arguments(const std::vector<std::string>& words) {
    for (const std::string& word : words) bytes_.append(word).push_back('\0');
    size_ = bytes_.size();
    bytes_ += "environment";
    std::size_t position = 0;
    for (const std::string& word : words) {
      pointers_.push_back(bytes_.data() + position);
      position += word.size() + 1;
    }
    pointers_.push_back(nullptr);
  }
  int count() const { return static_cast<int>(pointers_.size()) - 1; }
  char** pointers() { return pointers_.data(); }
  std::string shown() const { return bytes_.substr(0, size_); }
  bool is_environment_untouched() const { return bytes_.substr(size_) == "environment"; }

 private:
  std::string bytes_;
  std::size_t size_ = 0;
  std::vector<char*> pointers_;
};

TEST_CASE("ProcessTitle: is shown as far as there is room, and the original comes back") {
  const std::string name = short_name();
  Arguments arguments({"ddprun", "-n", "2", "train.py"});
  const std::string before = arguments.shown();
  ProcessTitle title(arguments.count(), arguments.pointers());
  title.set("sweeper of 1");
  CHECK(std::string(arguments.shown().c_str()) == "sweeper of 1");
  CHECK(arguments.shown().find("train") == std::string::npos);
  CHECK(short_name() == "sweeper");
  title.set(std::string(100, 'x') + " more");
  CHECK(arguments.shown() == std::string(before.size() - 1, 'x') + std::string(1, '\0'));
  CHECK(short_name() == std::string(15, 'x'));
  CHECK(arguments.is_environment_untouched());
  title.restore();
  CHECK(arguments.shown() == before);
  CHECK(short_name() == name);
}

TEST_CASE("ProcessTitle: a program without arguments, or with empty ones, has a short name only") {
  const std::string name = short_name();
  char* none = nullptr;
  ProcessTitle title(0, &none);
  title.set("other name");
  CHECK(short_name() == "other");
  title.restore();
  CHECK(short_name() == name);
  Arguments empty({"", ""});
  ProcessTitle small(empty.count(), empty.pointers());
  small.set("title");
  CHECK(empty.shown() == std::string("t\0", 2));
  small.restore();
  CHECK(empty.shown() == std::string("\0\0", 2));
}

TEST_CASE("ProcessTitle: arguments that somebody has moved are left alone") {
  Arguments arguments({"ddprun", "-n", "2"});
  std::string moved = "elsewhere";
  arguments.pointers()[1] = moved.data();
  ProcessTitle title(arguments.count(), arguments.pointers());
  title.set(std::string(100, 'x'));
  CHECK(moved == "elsewhere");
  CHECK(arguments.shown() == std::string("xxxxxx\0-n\0"
                                         "2\0",
                                         12));
  title.restore();
}

}  // namespace
}  // namespace launcher
