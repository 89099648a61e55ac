// A directory of checkpoints may hold anything: what counts as a checkpoint, in which order, and why one is damaged.
#include "checkpoint/storage/inventory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/set_aside.h"
#include "checkpoint/storage/staged_folder.h"
#include "checkpoint/storage/verified_files.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/steps_in.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp::storage {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using test::ElementsAre;
using test::error_of;
using test::steps_in;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

class Directory {
 protected:
  // A checkpoint without going through StagedFolder.
  fs::path put(const std::string& name, Manifest manifest, const std::string& model = "weights") {
    const auto folder = run() / name;
    fs::create_directories(folder);
    test::write_file(folder / "model.safetensors", model);
    manifest.files = {{"model.safetensors", {.size = model.size(), .crc32c = crc(model)}}};
    test::write_file(folder / kManifestName, format_manifest(manifest));
    return folder;
  }
  static uint32_t crc(const std::string& text) {
    test::TemporaryFolder folder;
    FileSystem files;
    DurableFile file(files, folder / "file");
    file.write(text.data(), text.size());
    return file.finish().crc32c;
  }
  fs::path run() const { return folder_ / "run"; }

  test::TemporaryFolder folder_;
  FileSystem files_;
};

TEST_CASE_METHOD(Directory, "Inventory: the last saved comes first, those without a number last and by step") {
  put("step-00000030", {.step = 30});
  put("step-00000040", {.step = 40});
  put("step-00000005", {.step = 5, .sequence = 2});
  put("step-00000020", {.step = 20, .sequence = 1});
  CHECK_THAT(steps_in(files_, run()), ElementsAre(5, 20, 40, 30));
  CHECK(last_sequence(files_, run()) == 2);
}

TEST_CASE_METHOD(Directory, "Inventory: steps and sequences of any size are told apart") {
  put(folder_name(kMax), {.step = kMax, .sequence = kMax - 1});
  put(folder_name(0), {.step = 0, .sequence = kMax});
  CHECK_THAT(steps_in(files_, run()), ElementsAre(0, kMax));
  CHECK(last_sequence(files_, run()) == kMax);
  CHECK(find_checkpoint(files_, run(), kMax) == run() / "step-9223372036854775807");
}

TEST_CASE_METHOD(Directory, "Inventory: what only looks like a checkpoint is none") {
  put("step-00000001", {.step = 1});
  for (const auto* name : {"step-1", "step-000000001", "step-00000002.tmp-1", "step-00000001.old-1", "previous-1",
                           "STEP-00000003", "step-00000003~", "latest.old-1"}) {
    put(name, {.step = 3});
  }
  CHECK_THAT(steps_in(files_, run()), ElementsAre(1));
  UNSCOPED_INFO("sequences are those of checkpoints alone");
  put("step-00000009.tmp-1", {.step = 9, .sequence = 99});
  CHECK(last_sequence(files_, run()) == 0);
}

TEST_CASE_METHOD(Directory, "Inventory: a link to a checkpoint is one, a link to nothing is damaged") {
  put("elsewhere", {.step = 4});
  fs::create_directory_symlink("elsewhere", run() / "step-00000004");
  CHECK_THAT(steps_in(files_, run()), ElementsAre(4));
  fs::create_symlink("nowhere", run() / "step-00000005");
  const auto found = list_checkpoints(files_, run());
  REQUIRE(found.size() == 2);
  CHECK(found[0].step == 5);
  CHECK_THAT(found[0].failure.text, ContainsSubstring("step-00000005 is damaged"));
}

TEST_CASE_METHOD(Directory, "Inventory: a file or a pipe in a checkpoint's place is damaged and keeps nobody waiting") {
  put("step-00000001", {.step = 1, .sequence = 1});
  test::write_file(run() / "step-00000002", "no folder");
  fs::create_directory(run() / "step-00000003");
  REQUIRE(::mkfifo((run() / "step-00000003" / kManifestName).c_str(), 0600) == 0);
  const auto piped = put("step-00000004", {.step = 4, .sequence = 2});
  fs::remove(piped / "model.safetensors");
  REQUIRE(::mkfifo((piped / "model.safetensors").c_str(), 0600) == 0);
  const auto found = list_checkpoints(files_, run());
  REQUIRE(found.size() == 4);
  CHECK_THAT((std::vector{found[0].step, found[1].step, found[2].step, found[3].step}), ElementsAre(3, 2, 4, 1));
  CHECK_THAT(found[0].failure.text, ContainsSubstring("expected a regular file"));
  CHECK_THAT(found[1].failure.text, ContainsSubstring("Not a directory"));
  CHECK_THAT(found[2].failure.text, ContainsSubstring("expected a regular file"));
  CHECK(!found[3].failure);
}

TEST_CASE_METHOD(Directory, "Inventory: a manifest in another folder's name is refused, also beside the right one") {
  put("step-00000001", {.step = 2});
  put("step-00000002", {.step = 2});
  const auto found = list_checkpoints(files_, run());
  REQUIRE(found.size() == 2);
  const auto& wrong = found[0].step == 1 ? found[0] : found[1];
  CHECK_THAT(wrong.failure.text, ContainsSubstring("its manifest belongs to step 2"));
}

TEST_CASE_METHOD(Directory, "Inventory: a directory that is none, or not there, is told apart from an empty one") {
  CHECK_THAT(list_checkpoints(files_, run()), IsEmpty());
  CHECK(last_sequence(files_, run()) == 0);
  CHECK(find_checkpoint(files_, run(), 3) == run() / "step-00000003");
  test::write_file(run(), "a file");
  CHECK_THROWS_WITH(list_checkpoints(files_, run()), ContainsSubstring("cannot list the folder"));
  UNSCOPED_INFO("whoever opens it is told");
  CHECK(find_checkpoint(files_, run(), 3) == run() / "step-00000003");
}

TEST_CASE_METHOD(Directory, "Inventory: two interrupted replacements of a step are two, of which the newer is first") {
  put("step-00000007.old-aaaa", {.step = 7, .sequence = 1}, "older");
  put("step-00000007.old-bbbb", {.step = 7, .sequence = 2}, "newer");
  const auto found = list_checkpoints(files_, run());
  REQUIRE(found.size() == 2);
  CHECK(found[0].manifest.sequence == 2);
  CHECK_THAT(find_checkpoint(files_, run(), 7).string(), ContainsSubstring("step-00000007.old-"));
  put("step-00000007", {.step = 7, .sequence = 3});
  CHECK_THAT(steps_in(files_, run()), ElementsAre(7));
  CHECK(find_checkpoint(files_, run(), 7) == run() / "step-00000007");
}

TEST_CASE_METHOD(Directory, "Inventory: an error of the disk in one checkpoint keeps no other from being listed") {
  put("step-00000001", {.step = 1, .sequence = 1});
  put("step-00000002", {.step = 2, .sequence = 2});
  int operations = 0;
  {
    test::FaultyFileSystem counter;
    list_checkpoints(counter, run());
    operations = static_cast<int>(counter.operations().size());
  }
  REQUIRE(operations >= 6);
  for (int at = 0; at < operations; ++at) {
    test::FaultyFileSystem faulty(test::FaultyFileSystem::fail_at(at, EIO));
    const auto found = list_checkpoints(faulty, run());
    INFO(at);
    REQUIRE(found.size() == 2);
    const auto damaged = std::count_if(found.begin(), found.end(),
                                       [](const auto& each) { return each.failure.kind == FailureKind::kUnreadable; });
    CHECK(damaged == 1);
    INFO("what cannot be looked at is in front, so that it is not overlooked");
    CHECK((found[0].failure ? found[0] : found[1]).failure.text.find("injected") != std::string::npos);
  }
}

TEST_CASE_METHOD(Directory, "Inventory: what the system cannot read is not called damaged, and is not overlooked") {
  put("step-00000001", {.step = 1, .sequence = 1});
  put("step-00000002", {.step = 2, .sequence = 2});
  const int error = GENERATE(EIO, EACCES, ESTALE);
  for (int at = 0; at < 6; ++at) {
    test::FaultyFileSystem faulty(test::FaultyFileSystem::fail_at(at, error));
    const auto found = list_checkpoints(faulty, run());
    INFO(at << ", " << std::strerror(error));
    REQUIRE(found.size() == 2);
    const auto& bad = found[0].failure ? found[0] : found[1];
    CHECK_THAT(bad.failure.text,
               ContainsSubstring(" cannot be read: injected: ") && ContainsSubstring(std::strerror(error)));
    CHECK_THAT(bad.failure.text, !ContainsSubstring("damaged"));
  }
}

TEST_CASE_METHOD(Directory, "Inventory: without descriptors or memory no checkpoint is judged") {
  put("step-00000001", {.step = 1, .sequence = 1});
  put("step-00000002", {.step = 2, .sequence = 2});
  const int error = GENERATE(EMFILE, ENFILE, ENOMEM);
  const auto folder = run() / "step-00000002";
  const auto manifest = read_manifest(files_, folder);
  const std::vector<std::function<void(FileSystem&)>> readers{
      [&](FileSystem& files) { list_checkpoints(files, run()); },
      [&](FileSystem& files) { last_sequence(files, run()); },
      [&](FileSystem& files) { read_manifest(files, folder); },
      [&](FileSystem& files) { verify_files(files, folder, manifest); },
      [&](FileSystem& files) { open_checkpoint(files, folder); },
      [&](FileSystem& files) { set_aside_checkpoints(files, run()); },
  };
  for (size_t reader = 0; reader < readers.size(); ++reader) {
    for (int at = 0; at < 2; ++at) {
      INFO("reader " << reader << ", operation " << at);
      test::FaultyFileSystem faulty(test::FaultyFileSystem::fail_at(at, error));
      CHECK_THROWS_MATCHES(
          readers[reader](faulty), std::system_error,
          Catch::Matchers::MessageMatches(ContainsSubstring("injected: ") && ContainsSubstring(std::strerror(error))));
    }
  }
  CHECK_THAT(steps_in(files_, run()), ElementsAre(2, 1));
}

TEST_CASE_METHOD(Directory, "Inventory: a process whose descriptors are used up is told so and can go on") {
  const auto folder = put("step-00000001", {.step = 1, .sequence = 1});
  auto manifest = read_manifest(files_, folder);
  test::write_file(folder / "optim.safetensors", "state");
  manifest.files["optim.safetensors"] = {.size = 5, .crc32c = crc("state")};
  test::write_file(folder / kManifestName, format_manifest(manifest));
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  std::string none, one;
  {
    const FileDescriptor next = files_.open(folder / kManifestName);
    const rlimit small{.rlim_cur = static_cast<rlim_t>(next.get()) + 1, .rlim_max = before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &small) == 0);
    none = error_of<std::system_error>([&] { list_checkpoints(files_, run()); });
  }
  // Now one is free: the manifest can be read, the two files cannot be open at once.
  one = error_of<std::system_error>([&] { open_checkpoint(files_, folder); });
  const auto listed = list_checkpoints(files_, run());
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK_THAT(none, ContainsSubstring("cannot list the folder") && ContainsSubstring("Too many open files"));
  CHECK_THAT(one, ContainsSubstring("cannot open") && ContainsSubstring("Too many open files"));
  REQUIRE(listed.size() == 1);
  CHECK(!listed[0].failure);
  CHECK(open_checkpoint(files_, folder).files.size() == 2);
}

TEST_CASE_METHOD(Directory, "Inventory: a number that cannot be read now is not given again") {
  put("step-00000001", {.step = 1, .sequence = 7});
  put("step-00000002", {.step = 2, .sequence = 900});
  put("step-00000003", {.step = 3, .sequence = 8});
  CHECK(last_sequence(files_, run()) == 900);
  test::FaultyFileSystem faulty([opened = 0](int, const std::string& operation) mutable {
    const bool is_second = operation == "open MANIFEST.json" && ++opened == 2;
    if (is_second) throw std::system_error(EIO, std::generic_category(), "bad");
  });
  const auto next = last_sequence(faulty, run());
  CHECK(next > 900);
  put("step-00000004", {.step = 4, .sequence = next + 1});
  CHECK_THAT(steps_in(files_, run()), ElementsAre(4, 2, 3, 1));
  UNSCOPED_INFO("what is damaged counts for nothing");
  test::write_file(run() / "step-00000004" / kManifestName, "no manifest");
  CHECK(last_sequence(files_, run()) == 900);
}

TEST_CASE_METHOD(Directory, "Inventory: a checkpoint is what its manifest lists, whatever else lies beside") {
  const auto folder = put("step-00000001", {.step = 1});
  test::write_file(folder / "notes.txt", "mine");
  fs::create_directory(folder / ".cache");
  const auto manifest = read_manifest(files_, folder);
  CHECK_NOTHROW(verify_files(files_, folder, manifest));
  test::write_file(folder / "model.safetensors", "Weights");
  UNSCOPED_INFO("the size is right, the bytes are not");
  CHECK_NOTHROW(read_manifest(files_, folder));
  CHECK_THROWS_WITH(verify_files(files_, folder, manifest), ContainsSubstring("the bytes of model.safetensors"));
  fs::remove(folder / "model.safetensors");
  fs::create_symlink("notes.txt", folder / "model.safetensors");
  CHECK_THROWS_AS(read_manifest(files_, folder), DamagedCheckpoint);
}

TEST_CASE_METHOD(Directory, "Inventory: a manifest of any size takes no more memory than one may have") {
  const auto folder = put("step-00000001", {.step = 1});
  for (const uint64_t size : {kMaxManifestBytes, kMaxManifestBytes + 1, uint64_t{1} << 42}) {
    std::error_code error;
    fs::resize_file(folder / kManifestName, size, error);
    if (error) continue;
    INFO(size);
    CHECK_THROWS_AS(read_manifest_only(files_, folder), DamagedCheckpoint);
  }
  fs::resize_file(folder / kManifestName, 0);
  CHECK_THROWS_WITH(read_manifest_only(files_, folder),
                    ContainsSubstring("MANIFEST.json: it does not have a manifest's format"));
}

}  // namespace
}  // namespace ddp::storage
