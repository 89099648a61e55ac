// A disk that is full or becomes read-only while checkpoints are saved: a small memory file system in a mount namespace
// of this process.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <string>

#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"
#include "tests/checkpoint/temporary_folder.h"

namespace ddp::storage {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SmallDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "disk");
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", disk().c_str(), "tmpfs", 0, "size=1m") != 0) {
      GTEST_SKIP() << "no right to mount a file system";
    }
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) ::umount2(disk().c_str(), MNT_DETACH);
  }

  std::filesystem::path disk() const { return folder_ / "disk"; }

  void save(int64_t step, size_t size) {
    StagedFolder staged(file_system_, disk() / "run", step);
    const std::string text(size, 'x');
    staged.write("model.safetensors", [&](ByteSink& sink) { sink.write(text.data(), text.size()); });
    staged.commit({});
  }

  std::vector<int64_t> valid_steps() {
    std::vector<int64_t> steps;
    for (const auto& entry : list_checkpoints(file_system_, disk() / "run")) {
      if (!entry.damage.empty()) continue;
      verify_files(file_system_, entry.folder, entry.manifest);
      steps.push_back(entry.step);
    }
    return steps;
  }

  test::TemporaryFolder folder_;
  FileSystem file_system_;
  bool mounted_ = false;
};

TEST_F(SmallDisk, AFullDiskIsAClearErrorAndNothingIsLost) {
  save(1, 300'000);
  // The last one leaves room for the file, but none for the manifest.
  for (const size_t size : {900'000, 760'000, 735'000}) {
    EXPECT_THAT(message_of([&] { save(2, size); }), AllOf(HasSubstr("step-00000002"), HasSubstr("No space left")));
    EXPECT_THAT(valid_steps(), ElementsAre(1));
    EXPECT_THAT(file_system_.entries(disk() / "run"), ElementsAre("latest", "step-00000001"));
  }
  save(2, 300'000);
  EXPECT_THAT(valid_steps(), ElementsAre(2, 1));
}

TEST_F(SmallDisk, AReadOnlyDiskIsAClearErrorAndOldCheckpointsStayReadable) {
  save(1, 1000);
  ASSERT_EQ(::mount("none", disk().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  EXPECT_THAT(message_of([&] { save(2, 1000); }), AllOf(HasSubstr("step-00000002"), HasSubstr("Read-only")));
  EXPECT_THAT(valid_steps(), ElementsAre(1));
  ASSERT_EQ(::mount("none", disk().c_str(), nullptr, MS_REMOUNT, nullptr), 0);
  save(2, 1000);
  EXPECT_THAT(valid_steps(), ElementsAre(2, 1));
}

}  // namespace
}  // namespace ddp::storage
