#include "checkpoint/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest() {
    std::string pattern = (fs::temp_directory_path() / "atomic_file_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~AtomicFileTest() override { fs::remove_all(folder_); }

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

  fs::path folder_;
};

TEST_F(AtomicFileTest, TwoWritersOfOneTargetBothSucceedAndTheLastWins) {
  const auto target = folder_ / "file";
  AtomicFile first(target);
  first.write("first", 5);
  AtomicFile second(target);  // removes what killed writers left, but the first one is alive
  second.write("second", 6);
  first.commit();
  EXPECT_EQ(content(target), "first");
  second.commit();
  EXPECT_EQ(content(target), "second");
}

TEST_F(AtomicFileTest, AppearsOnlyAtCommit) {
  const auto target = folder_ / "file";
  replace(target, "old");
  {
    AtomicFile file(target);
    file.write("ne", 2);
    EXPECT_EQ(content(target), "old");
    file.write("w", 1);
    file.commit();
  }
  EXPECT_EQ(content(target), "new");
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

TEST_F(AtomicFileTest, WithoutCommitNothingChanges) {
  const auto target = folder_ / "file";
  replace(target, "old");
  { AtomicFile(target).write("new", 3); }
  EXPECT_EQ(content(target), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

TEST_F(AtomicFileTest, RemovesWhatAKilledProcessLeftForTheSameTargetOnly) {
  std::ofstream(folder_ / "file.tmp-0123") << "left";
  std::ofstream(folder_ / "file2.tmp-0123") << "another's";
  replace(folder_ / "file", "new");
  EXPECT_EQ(names(), (std::vector<std::string>{"file", "file2.tmp-0123"}));
}

TEST_F(AtomicFileTest, WorksWithABareFileName) {
  const auto before = fs::current_path();
  fs::current_path(folder_);
  replace("bare", "text");
  fs::current_path(before);
  EXPECT_EQ(content(folder_ / "bare"), "text");
}

TEST_F(AtomicFileTest, AMissingFolderIsNamed) {
  try {
    AtomicFile file(folder_ / "missing" / "file");
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::no_such_file_or_directory);
    EXPECT_THAT(error.what(), HasSubstr((folder_ / "missing" / "file").string()));
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
  }
}

TEST_F(AtomicFileTest, ATargetThatIsAFolderIsRefusedAndKept) {
  fs::create_directories(folder_ / "target" / "inside");
  EXPECT_THROW(replace(folder_ / "target", "text"), std::system_error);
  EXPECT_EQ(names(), std::vector<std::string>{"target"});
  EXPECT_TRUE(fs::exists(folder_ / "target" / "inside"));
}

TEST_F(AtomicFileTest, AFileSizeLimitIsAnErrorNotADeadProcess) {
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
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(content(target), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

// A child replaces the file over and over; whenever it is killed, the file is one whole version.
TEST_F(AtomicFileTest, KilledAtAnyMomentTheFileIsWhole) {
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
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const auto now = content(target);
    ASSERT_EQ(now.size(), kBytes);
    ASSERT_EQ(now.find_first_not_of(now.front()), std::string::npos) << "torn in round " << round;
    versions_seen += now.front() != last ? 1 : 0;
    last = now.front();
  }
  EXPECT_GT(versions_seen, 0) << "no child got as far as one commit";
  replace(target, "end");
  EXPECT_EQ(names(), std::vector<std::string>{"file"}) << "leftovers of the killed children remain";
}

}  // namespace
}  // namespace ddp
