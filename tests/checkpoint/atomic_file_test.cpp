#include "checkpoint/core/atomic_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/checkpoint/faulty_file_system.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

class AtomicFiles {
 protected:
  std::string content(const fs::path& path) const {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  static void replace(const fs::path& path, const std::string& text) {
    AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  }

  const test::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
};

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: two writers of one target both succeed and the last wins") {
  const auto target = folder_ / "file";
  AtomicFile first(target);
  first.write("first", 5);
  AtomicFile second(target);  // removes what killed writers left, but the first one is alive
  second.write("second", 6);
  first.commit();
  CHECK(content(target) == "first");
  second.commit();
  CHECK(content(target) == "second");
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: appears only at commit") {
  const auto target = folder_ / "file";
  replace(target, "old");
  {
    AtomicFile file(target);
    file.write("ne", 2);
    CHECK(content(target) == "old");
    file.write("w", 1);
    file.commit();
  }
  CHECK(content(target) == "new");
  CHECK(names() == std::vector<std::string>{"file"});
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: without commit nothing changes") {
  const auto target = folder_ / "file";
  replace(target, "old");
  { AtomicFile(target).write("new", 3); }
  CHECK(content(target) == "old");
  CHECK(names() == std::vector<std::string>{"file"});
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: removes what a killed process left for the same target only") {
  std::ofstream(folder_ / "file.tmp-0123") << "left";
  std::ofstream(folder_ / "file2.tmp-0123") << "another's";
  replace(folder_ / "file", "new");
  CHECK(names() == std::vector<std::string>{"file", "file2.tmp-0123"});
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: works with a bare file name") {
  const auto before = fs::current_path();
  fs::current_path(folder_);
  replace("bare", "text");
  fs::current_path(before);
  CHECK(content(folder_ / "bare") == "text");
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: a missing folder is named") {
  try {
    AtomicFile file(folder_ / "missing" / "file");
    FAIL();
  } catch (const std::system_error& error) {
    CHECK(error.code() == std::errc::no_such_file_or_directory);
    CHECK_THAT(error.what(), ContainsSubstring((folder_ / "missing" / "file").string()));
    CHECK_THAT(error.what(), ContainsSubstring("No such file"));
  }
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: a target that is a folder is refused and kept") {
  fs::create_directories(folder_ / "target" / "inside");
  CHECK_THROWS_AS(replace(folder_ / "target", "text"), std::system_error);
  CHECK(names() == std::vector<std::string>{"target"});
  CHECK(fs::exists(folder_ / "target" / "inside"));
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: a file size limit is an error, not a dead process") {
  const auto target = folder_ / "file";
  replace(target, "old");
  const auto child = ::fork();
  if (child == 0) {
    rlimit limit{.rlim_cur = 100'000, .rlim_max = 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      replace(target, std::string(1'000'000, 'x'));
    } catch (const std::system_error& error) {
      const std::string message = error.what();
      ::_exit(error.code().value() == EFBIG && message.find(target.string()) != std::string::npos ? 0 : 2);
    }
    ::_exit(3);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  UNSCOPED_INFO(status);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(content(target) == "old");
  CHECK(names() == std::vector<std::string>{"file"});
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: a path that names no file is refused and nothing is touched") {
  // Their names would begin with the ending of leftovers.
  std::ofstream(folder_ / ".tmp-notes") << "mine";
  fs::create_directory(folder_ / "folder");
  const auto before = fs::current_path();
  fs::current_path(folder_);
  for (const auto* path : {"", ".", "..", "folder/", "folder/.", "folder/..", "/", "./"}) {
    INFO(path);
    CHECK_THROWS_AS(AtomicFile(path), std::system_error);
  }
  fs::current_path(before);
  CHECK_THROWS_AS(AtomicFile(folder_ / ""), std::system_error);
  CHECK(names() == std::vector<std::string>{".tmp-notes", "folder"});
  CHECK(content(folder_ / ".tmp-notes") == "mine");
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: every name that the file system takes is a target") {
  const auto longest = std::string(255, 'n');
  replace(folder_ / longest, "text");
  CHECK(content(folder_ / longest) == "text");
  const std::string names_of_bytes[] = {"\xc3\xa4\xf0\x9f\x9a\x80", "\xff\xfe", " ", "a\nb", "-rf", "*"};
  for (const auto& name : names_of_bytes) {
    replace(folder_ / name, name);
    CHECK(content(folder_ / name) == name);
  }
  CHECK(names().size() == 7);
  CHECK_THROWS_AS(replace(folder_ / std::string(256, 'n'), "text"), std::system_error);
  CHECK(names().size() == 7);
  // What a killed process left for the long name is found again.
  std::ofstream(folder_ / (std::string(255 - 21, 'n') + ".tmp-0123456789abcdef")) << "left";
  replace(folder_ / longest, "new");
  CHECK(names().size() == 7);
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: another writer at any moment takes nothing away") {
  const auto target = folder_ / "file";
  for (int at = 0;; ++at) {
    bool is_disturbed = false;
    auto files = std::make_shared<test::FaultyFileSystem>([&](int number, const std::string&) {
      if (number != at) return;
      is_disturbed = true;
      replace(target, "other");
    });
    INFO("before operation " << at);
    {
      AtomicFile file(target, files);
      file.write("mine", 4);
      file.commit();
    }
    CHECK(content(target) ==
          (is_disturbed && at + 1 == static_cast<int>(files->operations().size()) ? "other" : "mine"));
    CHECK(names() == std::vector<std::string>{"file"});
    if (!is_disturbed) break;
  }
}

TEST_CASE_METHOD(AtomicFiles,
                 "AtomicFile: a failure at any moment leaves the old file or the new one and nothing else") {
  const auto target = folder_ / "file";
  const int errors[] = {EIO, ENOSPC, EACCES};
  for (int at = 0;; ++at) {
    replace(target, "old");
    auto files = std::make_shared<test::FaultyFileSystem>(test::FaultyFileSystem::fail_at(at, errors[at % 3]));
    bool has_failed = false;
    try {
      AtomicFile file(target, files);
      file.write("new", 3);
      file.commit();
    } catch (const std::system_error& error) {
      has_failed = true;
      CHECK(error.code().value() == errors[at % 3]);
    }
    INFO("operation " << at);
    const auto now = content(target);
    CHECK((now == "new" || (has_failed && now == "old")));
    CHECK(names() == std::vector<std::string>{"file"});
    if (!has_failed) break;
  }
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: without locks nobody's file is taken for a leftover") {
  auto files = std::make_shared<test::FaultyFileSystem>();
  files->can_lock(false);
  AtomicFile first(folder_ / "file", files);
  first.write("first", 5);
  {
    AtomicFile second(folder_ / "file", files);
    second.write("second", 6);
    second.commit();
  }
  first.commit();
  CHECK(content(folder_ / "file") == "first");
}

TEST_CASE_METHOD(AtomicFiles, "AtomicFile: a link is replaced, not what it points to") {
  std::ofstream(folder_ / "precious") << "kept";
  fs::create_symlink("precious", folder_ / "file");
  fs::create_symlink("nowhere", folder_ / "file.tmp-1");
  replace(folder_ / "file", "new");
  CHECK(content(folder_ / "precious") == "kept");
  CHECK_FALSE(fs::is_symlink(folder_ / "file"));
  CHECK(content(folder_ / "file") == "new");
}

// A child replaces the file over and over; whenever it is killed, the file is one whole version.
TEST_CASE_METHOD(AtomicFiles, "AtomicFile: killed at any moment the file is whole") {
  constexpr size_t kBytes = 300'000;
  const auto target = folder_ / "file";
  replace(target, std::string(kBytes, 'a'));
  std::mt19937 random(7);
  size_t versions_seen = 0;
  char last = 'a';
  for (int round = 0; round < 40; ++round) {
    const auto child = ::fork();
    if (child == 0) {
      for (char version = 'b';; version = version == 'z' ? 'a' : static_cast<char>(version + 1)) {
        AtomicFile file(target);
        const std::string piece(kBytes / 10, version);
        for (int i = 0; i < 10; ++i) file.write(piece.data(), piece.size());
        file.commit();
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));  // the random instant of the kill
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    const auto now = content(target);
    REQUIRE(now.size() == kBytes);
    INFO("torn in round " << round);
    REQUIRE(now.find_first_not_of(now.front()) == std::string::npos);
    versions_seen += now.front() != last ? 1 : 0;
    last = now.front();
  }
  UNSCOPED_INFO("no child got as far as one commit");
  CHECK(versions_seen > 0);
  replace(target, "end");
  INFO("leftovers of the killed children remain");
  CHECK(names() == std::vector<std::string>{"file"});
}

}  // namespace
}  // namespace ddp
