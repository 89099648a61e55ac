// A disk that is full or becomes read-only while checkpoints are saved: a small memory file system in a mount namespace
// of this process.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include <string>
#include <vector>

#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp::storage {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::ElementsAre;
using test::error_of;

class SmallDisk {
 protected:
  SmallDisk() {
    std::filesystem::create_directory(folder_ / "disk");
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", disk().c_str(), "tmpfs", 0, "size=1m") != 0) {
      SKIP("no right to mount a file system");
    }
    mounted_ = true;
  }
  ~SmallDisk() {
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
      if (entry.failure) continue;
      verify_files(file_system_, entry.folder, entry.manifest);
      steps.push_back(entry.step);
    }
    return steps;
  }

  test::TemporaryFolder folder_;
  FileSystem file_system_;
  bool mounted_ = false;
};

TEST_CASE_METHOD(SmallDisk, "SmallDisk: a full disk is a clear error and nothing is lost") {
  save(1, 300'000);
  // The last one leaves room for the file, but none for the manifest.
  for (const size_t size : {900'000, 760'000, 735'000}) {
    CHECK_THROWS_WITH(save(2, size), ContainsSubstring("step-00000002") && ContainsSubstring("No space left"));
    CHECK_THAT(valid_steps(), ElementsAre(1));
    CHECK_THAT(file_system_.entries(disk() / "run"), ElementsAre("latest", "step-00000001"));
  }
  save(2, 300'000);
  CHECK_THAT(valid_steps(), ElementsAre(2, 1));
}

TEST_CASE_METHOD(SmallDisk, "SmallDisk: a read-only disk is a clear error and old checkpoints stay readable") {
  save(1, 1000);
  REQUIRE(::mount("none", disk().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0);
  CHECK_THROWS_WITH(save(2, 1000), ContainsSubstring("step-00000002") && ContainsSubstring("Read-only"));
  CHECK_THAT(valid_steps(), ElementsAre(1));
  REQUIRE(::mount("none", disk().c_str(), nullptr, MS_REMOUNT, nullptr) == 0);
  save(2, 1000);
  CHECK_THAT(valid_steps(), ElementsAre(2, 1));
}

}  // namespace
}  // namespace ddp::storage
