// A checkpoint folder exists whole or not at all, whatever happens while it is written: every operation on the file
// system fails once, and the process is killed once at each of them.
#include "checkpoint/storage/staged_folder.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp::storage {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using test::ElementsAre;
using test::error_of;
using test::FaultyFileSystem;
using test::TemporaryFolder;

std::string content(int64_t step, int version) {
  return std::string(3000, static_cast<char>('a' + step % 20)) + "version " + std::to_string(version);
}

std::string save_staged(FileSystem& file_system, const std::filesystem::path& directory, int64_t step,
                        int version = 0) {
  StagedFolder staged(file_system, directory, step);
  const auto text = content(step, version);
  staged.write("model.safetensors", [&](ByteSink& sink) { sink.write(text.data(), text.size()); });
  staged.write("trainer.json", [](ByteSink& sink) { sink.write("{}", 2); });
  return staged.commit({.world_size = 2});
}

std::vector<int64_t> valid_steps(const std::filesystem::path& directory) {
  FileSystem file_system;
  std::vector<int64_t> steps;
  for (const auto& entry : list_checkpoints(file_system, directory)) {
    if (entry.failure) continue;
    verify_files(file_system, entry.folder, entry.manifest);
    steps.push_back(entry.step);
  }
  return steps;
}

std::string model_of(const std::filesystem::path& directory, int64_t step) {
  return test::read_file(directory / folder_name(step) / "model.safetensors");
}

// Runs `action` in a child process that is killed at one operation after the other, until it survives; `check` after
// each.
int kill_at_every_operation(const std::function<void(FileSystem&, const std::filesystem::path&)>& action,
                            const std::function<void(const std::filesystem::path&)>& prepare,
                            const std::function<void(const std::filesystem::path&, int)>& check,
                            bool can_exchange = true) {
  for (int at = 0;; ++at) {
    const TemporaryFolder folder;
    const auto directory = folder / "run";
    prepare(directory);
    const auto child = ::fork();
    if (child == 0) {
      FaultyFileSystem file_system(FaultyFileSystem::kill_at(at));
      file_system.can_exchange(can_exchange);
      try {
        action(file_system, directory);
        ::_exit(0);
      } catch (...) {
        ::_exit(1);
      }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    check(directory, at);
    if (WIFEXITED(status)) {
      CHECK(WEXITSTATUS(status) == 0);
      return at;
    }
  }
}

void prepare_step_one(const std::filesystem::path& directory) {
  FileSystem file_system;
  save_staged(file_system, directory, 1);
}

TEST_CASE("StagedFolder: a committed checkpoint is listed with its manifest") {
  const TemporaryFolder folder;
  FileSystem file_system;
  CHECK_THAT(list_checkpoints(file_system, folder / "run"), IsEmpty());
  CHECK(save_staged(file_system, folder / "run", 7) == "");
  CHECK(save_staged(file_system, folder / "run", 123456789012) == "");
  const auto found = list_checkpoints(file_system, folder / "run");
  REQUIRE(found.size() == 2);
  CHECK(found[0].folder.filename() == "step-123456789012");
  CHECK(found[1].folder.filename() == "step-00000007");
  CHECK(found[1].manifest.world_size == 2);
  CHECK(found[1].manifest.files.size() == 2);
  CHECK(test::read_file(folder / "run" / "latest") == "step-123456789012\n");
  CHECK_THAT(file_system.entries(folder / "run"), ElementsAre("latest", "step-00000007", "step-123456789012"));
}

TEST_CASE("StagedFolder: bytes reach the disk before their names") {
  const TemporaryFolder folder;
  FaultyFileSystem file_system;
  save_staged(file_system, folder / "run", 7);
  const auto& operations = file_system.operations();
  const auto at = [&](const std::string& what) {
    const auto found = std::find(operations.begin(), operations.end(), what);
    INFO(what);
    CHECK(found != operations.end());
    return found - operations.begin();
  };
  CHECK(at("sync model.safetensors") < at("create MANIFEST.json"));
  CHECK(at("sync trainer.json") < at("create MANIFEST.json"));
  CHECK(at("sync MANIFEST.json") < at("rename to step-00000007"));
  const auto renamed = operations.begin() + at("rename to step-00000007");
  CHECK_THAT(*(renamed - 1), ContainsSubstring("sync folder step-00000007.tmp-"));
  CHECK(*(renamed + 1) == "sync folder run");
  CHECK(at("sync folder run") < at("rename to latest"));
}

TEST_CASE("StagedFolder: a kill at any operation leaves the old checkpoint or the new one") {
  const auto operations = kill_at_every_operation(
      [](FileSystem& file_system, const auto& directory) { save_staged(file_system, directory, 2); }, prepare_step_one,
      [](const auto& directory, int at) {
        const auto steps = valid_steps(directory);
        UNSCOPED_INFO("killed at " << at);
        REQUIRE((steps == std::vector<int64_t>{1} || steps == (std::vector<int64_t>{2, 1})));
        FileSystem file_system;
        remove_leftovers(file_system, directory);
        save_staged(file_system, directory, 2, 1);
        CHECK_THAT(valid_steps(directory), ElementsAre(2, 1));
        CHECK(model_of(directory, 2) == content(2, 1));
        CHECK_THAT(file_system.entries(directory), ElementsAre("latest", "step-00000001", "step-00000002"));
      });
  CHECK(operations > 20);
}

TEST_CASE("StagedFolder: a kill while replacing leaves the old version or the new one") {
  for (const bool can_exchange : {true, false}) {
    kill_at_every_operation(
        [](FileSystem& file_system, const auto& directory) { save_staged(file_system, directory, 1, 5); },
        prepare_step_one,
        [&](const auto& directory, int at) {
          FileSystem file_system;
          remove_leftovers(file_system, directory);
          INFO("killed at " << at);
          CHECK_THAT(valid_steps(directory), ElementsAre(1));
          const auto model = model_of(directory, 1);
          CHECK((model == content(1, 0) || model == content(1, 5)));
          CHECK_THAT(file_system.entries(directory), ElementsAre("latest", "step-00000001"));
        },
        can_exchange);
  }
}

TEST_CASE("StagedFolder: a kill while removing leaves a whole checkpoint or none") {
  kill_at_every_operation(
      [](FileSystem& file_system, const auto& directory) { remove_checkpoint(file_system, directory, 1); },
      [](const auto& directory) {
        prepare_step_one(directory);
        FileSystem file_system;
        save_staged(file_system, directory, 2);
      },
      [](const auto& directory, int at) {
        FileSystem file_system;
        for (const auto& entry : list_checkpoints(file_system, directory)) {
          UNSCOPED_INFO(at);
          CHECK(!entry.failure);
        }
        remove_leftovers(file_system, directory);
        CHECK(valid_steps(directory).front() == 2);
      });
}

TEST_CASE("StagedFolder: a failure of any operation is reported and the old checkpoint stays") {
  const int errors[] = {EIO, ENOSPC, EACCES, EDQUOT, ESTALE};
  for (int at = 0;; ++at) {
    const TemporaryFolder folder;
    const auto directory = folder / "run";
    prepare_step_one(directory);
    FaultyFileSystem file_system(FaultyFileSystem::fail_from(at, errors[at % std::size(errors)]));
    std::string warning;
    const auto message = error_of([&] { warning = save_staged(file_system, directory, 2); });
    const auto steps = valid_steps(directory);
    CHECK(steps.back() == 1);
    if (message == "no error" && warning.empty()) break;
    CHECK_THAT(message + warning, ContainsSubstring("injected: "));
    // A warning concerns the hint alone.
    if (!warning.empty()) {
      CHECK_THAT(steps, ElementsAre(2, 1));
    }
    FileSystem whole;
    remove_leftovers(whole, directory);
    save_staged(whole, directory, 3);
    CHECK(valid_steps(directory).front() == 3);
  }
}

TEST_CASE("StagedFolder: what one passing failure leaves is removed at once") {
  const TemporaryFolder folder;
  FaultyFileSystem file_system(FaultyFileSystem::fail_at(4, ENOSPC));
  CHECK_THROWS_WITH(save_staged(file_system, folder / "run", 2), ContainsSubstring("No space left"));
  CHECK_THAT(file_system.entries(folder / "run"), IsEmpty());
}

TEST_CASE("StagedFolder: a file size limit is an error not a signal") {
  const TemporaryFolder folder;
  FileSystem file_system;
  save_staged(file_system, folder / "run", 1);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto message = error_of([&] { save_staged(file_system, folder / "run", 2); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  CHECK_THAT(message, ContainsSubstring("cannot write to") && ContainsSubstring("File too large"));
  CHECK_THAT(file_system.entries(folder / "run"), ElementsAre("latest", "step-00000001"));
  save_staged(file_system, folder / "run", 2);
  CHECK_THAT(valid_steps(folder / "run"), ElementsAre(2, 1));
}

TEST_CASE("StagedFolder: an unusable directory is named") {
  const TemporaryFolder folder;
  test::write_file(folder / "file", "not a folder");
  FileSystem file_system;
  CHECK_THROWS_WITH(save_staged(file_system, folder / "file", 1),
                    ContainsSubstring("cannot create the folder") && ContainsSubstring("Not a directory"));
  CHECK(test::read_file(folder / "file") == "not a folder");
}

TEST_CASE("StagedFolder: a directory that was removed is made again") {
  const TemporaryFolder folder;
  FileSystem file_system;
  save_staged(file_system, folder / "run", 1);
  std::filesystem::remove_all(folder / "run");
  save_staged(file_system, folder / "run", 2);
  CHECK_THAT(valid_steps(folder / "run"), ElementsAre(2));
}

TEST_CASE("StagedFolder: other files in the directory are left alone") {
  const TemporaryFolder folder;
  FileSystem file_system;
  save_staged(file_system, folder / "run", 1);
  for (const char* name : {"notes.txt", "step-1", "step-00000001x", "best.tmp-1", "step-00000003.tmp-1"}) {
    test::write_file(folder / "run" / name, "x");
  }
  remove_leftovers(file_system, folder / "run");
  CHECK_THAT(valid_steps(folder / "run"), ElementsAre(1));
  CHECK_THAT(file_system.entries(folder / "run"),
             ElementsAre("best.tmp-1", "latest", "notes.txt", "step-00000001", "step-00000001x", "step-1"));
}

TEST_CASE("StagedFolder: a leftover that cannot be removed keeps no other") {
  const TemporaryFolder folder;
  const auto run = folder / "run";
  FileSystem files;
  for (int64_t step : {1, 2, 3}) save_staged(files, run, step);
  std::filesystem::rename(run / "step-00000002", run / "step-00000002.old-1");
  for (const auto* name : {"step-00000001.tmp-stuck", "step-00000004.tmp-1", "latest.tmp-1"}) {
    test::write_file(run / name, "x");
  }
  FaultyFileSystem faulty([](int, const std::string& operation) {
    if (operation == "remove step-00000001.tmp-stuck") throw std::system_error(EPERM, std::generic_category(), "stuck");
  });
  CHECK_THROWS_WITH(remove_leftovers(faulty, run), ContainsSubstring("stuck"));
  CHECK_THAT(files.entries(run),
             ElementsAre("latest", "step-00000001", "step-00000001.tmp-stuck", "step-00000002", "step-00000003"));
  CHECK_THAT(valid_steps(run), ElementsAre(3, 2, 1));
}

TEST_CASE("StagedFolder: a link to nothing in a checkpoint's place stops no cleaning and costs no checkpoint") {
  const TemporaryFolder folder;
  const auto run = folder / "run";
  FileSystem files;
  for (int64_t step : {1, 2}) save_staged(files, run, step);
  std::filesystem::rename(run / "step-00000002", run / "step-00000002.old-1");
  std::filesystem::create_symlink("nowhere", run / "step-00000002");
  test::write_file(run / "step-00000003.tmp-1", "x");
  remove_leftovers(files, run);
  CHECK_THAT(files.entries(run), ElementsAre("latest", "step-00000001", "step-00000002", "step-00000002.old-1"));
  std::filesystem::remove(run / "step-00000002");
  remove_leftovers(files, run);
  CHECK_THAT(valid_steps(run), ElementsAre(2, 1));
}

TEST_CASE("StagedFolder: what could not be read again is not committed") {
  const TemporaryFolder folder;
  const auto run = folder / "run";
  FileSystem files;
  save_staged(files, run, 1);
  const auto refusal = [&](Manifest manifest) {
    return error_of<std::invalid_argument>([&] { StagedFolder(files, run, 2).commit(std::move(manifest)); });
  };
  Manifest many;
  for (int i = 0; i < 5000; ++i) many.metrics[std::string(240, 'm') + std::to_string(i)] = i;
  CHECK_THAT(refusal(many), ContainsSubstring("more than the 1048576"));
  UNSCOPED_INFO("no JSON reader takes it, Python's neither");
  CHECK(refusal({.metrics = {{"lo\xffss", 1}}}) == "the metric 'lo?ss' has a name that is not UTF-8");
  CHECK(refusal({.metrics = {{"verlust \xc3\xa4", 1}}}) == "no error");
  CHECK_THAT(valid_steps(run), ElementsAre(2, 1));
  CHECK_THAT(files.entries(run), ElementsAre("latest", "step-00000001", "step-00000002"));
}

struct Damage {
  const char* name;
  std::function<void(const std::filesystem::path& checkpoint)> make;
  const char* reason;
};

class DamagedFolder {
 protected:
  const Damage kind_ = GENERATE(
      as<Damage>(),
      Damage{"NoManifest", [](const auto& path) { std::filesystem::remove(path / kManifestName); }, "No such file"},
      Damage{"MissingFile", [](const auto& path) { std::filesystem::remove(path / "trainer.json"); },
             "trainer.json: No such file"},
      Damage{"CutFile", [](const auto& path) { std::filesystem::resize_file(path / "model.safetensors", 100); },
             "model.safetensors has 100 bytes, but 3009 were written"},
      Damage{"FlippedBit",
             [](const auto& path) {
               auto bytes = test::read_file(path / "model.safetensors");
               bytes[1234] = static_cast<char>(bytes[1234] ^ 16);
               test::write_file(path / "model.safetensors", bytes);
             },
             "the bytes of model.safetensors are not those that were written"},
      Damage{"FolderForFile",
             [](const auto& path) {
               std::filesystem::remove(path / "trainer.json");
               std::filesystem::create_directory(path / "trainer.json");
             },
             "Is a directory"},
      Damage{"HugeManifest",
             [](const auto& path) { std::filesystem::resize_file(path / kManifestName, 3'000'000'000); },
             "it has 3000000000 bytes"},
      Damage{"OtherStep", [](const auto& path) { std::filesystem::rename(path, path.parent_path() / "step-00000009"); },
             "its manifest belongs to step 1"});
  FIXTURE_INFO("kind: " << kind_.name);
};

TEST_CASE_METHOD(DamagedFolder, "DamagedFolder: is refused with its reason") {
  const TemporaryFolder folder;
  FileSystem file_system;
  save_staged(file_system, folder / "run", 1);
  const auto checkpoint = folder / "run" / "step-00000001";
  kind_.make(checkpoint);
  CHECK_THROWS_WITH(
      [&] {
        const auto entry = list_checkpoints(file_system, folder / "run").at(0);
        if (entry.failure) throw DamagedCheckpoint(entry.failure.text);
        verify_files(file_system, entry.folder, entry.manifest);
      }(),
      ContainsSubstring("step-0000000") && ContainsSubstring("is damaged") && ContainsSubstring(kind_.reason));
}

}  // namespace
}  // namespace ddp::storage
