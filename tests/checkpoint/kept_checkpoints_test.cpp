// Which checkpoints a folder keeps, which one is the newest, and who may write there beside whom.
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/comm/collectives.h>

#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/staged_folder.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/manager_runs.h"
#include "tests/checkpoint/nets.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::AllMatch;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using test::copy_of;
using test::ElementsAre;
using test::equal;
using test::error_of;
using test::FaultyFileSystem;
using test::run_ranks;
using test::Said;
using test::single_process;
using test::steps_of;
using test::TemporaryFolder;
using test::train;
using test::Training;

TEST_CASE("CheckpointManager: old checkpoints are removed by the rules and never the newest valid") {
  const TemporaryFolder folder;
  Training run;
  {
    CheckpointManager manager(
        folder / "run", single_process(),
        {.keep_last = 2, .keep_every = 5, .keep_best = KeepBest{.metric = "accuracy", .higher_is_better = true}});
    for (int64_t step = 1; step <= 9; ++step) {
      manager.save(step, {.model = run.net}, {.metrics = {{"accuracy", step == 3 ? 0.9 : 0.1}}});
    }
    CHECK_THAT(steps_of(manager), ElementsAre(9, 8, 5, 3));
  }
  // The two newest are damaged inside, which their sizes do not show.
  for (const char* name : {"step-00000009", "step-00000008"}) {
    auto bytes = test::read_file(folder / "run" / name / "model.safetensors");
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    test::write_file(folder / "run" / name / "model.safetensors", bytes);
  }
  CheckpointManager strict(folder / "run", single_process(), {.keep_last = 1, .notify = [](const std::string&) {}});
  strict.prune();
  CHECK_THAT(steps_of(strict), ElementsAre(9, 8, 5));
  CHECK(strict.load_latest({.model = run.net})->step == 5);
}

TEST_CASE("CheckpointManager: a run that went back keeps what it saves") {
  const TemporaryFolder folder;
  Training run;
  CheckpointManager manager(folder / "run", single_process(), {.keep_last = 2});
  for (const int64_t step : {10, 20, 30}) manager.save(step, {.model = run.net});
  manager.load(20, {.model = run.net});
  train(run.net, run.optimizer, 0, 1);
  manager.save(15, {.model = run.net});
  CHECK_THAT(steps_of(manager), ElementsAre(15, 30));
  manager.save(20, {.model = run.net});
  CHECK_THAT(steps_of(manager), ElementsAre(20, 15));
  CHECK(equal(load_safetensors(folder / "run" / "step-00000020" / "model.safetensors"), copy_of(*run.net)));
}

TEST_CASE("CheckpointManager: the newest is what was saved last and not the most steps") {
  const TemporaryFolder folder;
  run_ranks(2, [&](const GroupHandle& group) {
    Training run;
    {
      CheckpointManager manager(folder / "run", group);
      for (const int64_t step : {10, 20, 30}) manager.save(step, {.model = run.net});
      manager.load(10, {.model = run.net});
      manager.save(15, {.model = run.net});
      RANK_INFO("30 was abandoned");
      RANK_CHECK(manager.load_latest({.model = run.net})->step == 15);
    }
    barrier(group);
    CheckpointManager later(folder / "run", group);
    RANK_CHECK(later.load_latest({.model = run.net})->step == 15);
    later.save(16, {.model = run.net});
    RANK_CHECK_THAT(steps_of(later), ElementsAre(16, 15, 30, 20, 10));
  });
}

TEST_CASE("CheckpointManager: a second one that saves is refused on all ranks and loads all the same") {
  const TemporaryFolder folder;
  Said messages;
  for (const bool async : {false, true}) {
    run_ranks(2, [&](const GroupHandle& group) {
      Training run;
      CheckpointManager first(folder / "run", group), second(folder / "run", group, {.async = async});
      RANK_CHECK_FALSE(second.load_latest({.model = run.net}).has_value() && !async);
      first.claim();
      messages.add(error_of([&] { second.claim(); }));
      messages.add(error_of([&] { second.save(1, {.model = run.net}); }));
      messages.add(error_of([&] { second.prune(); }));
      first.save(2, {.model = run.net});
      RANK_CHECK(second.load_latest({.model = run.net})->step == 2);
      RANK_CHECK_THAT(steps_of(second), ElementsAre(2));
    });
  }
  CHECK(messages.all().size() == 12);
  CHECK_THAT(messages.all(), AllMatch(ContainsSubstring("is already in use for saving by another CheckpointManager") &&
                                      ContainsSubstring("process " + std::to_string(::getpid()))));
}

TEST_CASE("CheckpointManager: loading needs no right to write and leaves what others are writing") {
  const TemporaryFolder folder;
  Training run;
  {
    CheckpointManager manager(folder / "run", single_process());
    manager.save(1, {.model = run.net});
  }
  std::filesystem::create_directory(folder / "run" / "step-00000002.tmp-1");
  auto read_only = std::make_shared<FaultyFileSystem>([](int, const std::string& operation) {
    const bool is_harmless = operation.starts_with("open ") || operation.starts_with("read ");
    if (is_harmless && !operation.starts_with("open the lock")) return;
    throw std::system_error(EROFS, std::generic_category(), operation);
  });
  CheckpointManager reader(folder / "run", single_process(), {.file_system = read_only});
  CHECK(reader.load_latest({.model = run.net})->step == 1);
  CHECK(reader.load(1, {.model = run.net}).step == 1);
  CHECK(std::filesystem::exists(folder / "run" / "step-00000002.tmp-1"));
  CHECK_THROWS_WITH(reader.save(2, {.model = run.net}), ContainsSubstring("Read-only file system"));
  CheckpointManager writer(folder / "run", single_process());
  writer.save(3, {.model = run.net});
  INFO("the one that saves cleans up");
  CHECK_FALSE(std::filesystem::exists(folder / "run" / "step-00000002.tmp-1"));
}

TEST_CASE("CheckpointManager: without locks it says so once and leaves what may be another's") {
  const TemporaryFolder folder;
  Training run;
  std::filesystem::create_directories(folder / "run" / "step-00000002.tmp-1");
  auto lockless = std::make_shared<FaultyFileSystem>();
  lockless->can_lock(false);
  Said notices;
  const CheckpointOptions options{.notify = [&](const std::string& text) { notices.add(text); },
                                  .file_system = lockless};
  CheckpointManager one(folder / "run", single_process(), options);
  for (const int64_t step : {30, 10}) one.save(step, {.model = run.net});
  CHECK_THAT(notices.all(), ElementsAre(ContainsSubstring("without locks")));
  CheckpointManager other(folder / "run", single_process(), options);
  other.save(20, {.model = run.net});
  one.save(5, {.model = run.net});
  UNSCOPED_INFO("numbered one after the other all the same");
  CHECK_THAT(steps_of(one), ElementsAre(5, 20, 10, 30));
  CHECK(std::filesystem::exists(folder / "run" / "step-00000002.tmp-1"));
}

TEST_CASE("CheckpointManager: load_latest goes on to the next one when retention removes its own") {
  const TemporaryFolder folder;
  run_ranks(2, [&](const GroupHandle& group) {
    Training run;
    CheckpointManager manager(folder / "run", group);
    manager.save(1, {.model = run.net});
    // Whenever rank 0 of the reader is about to open a checkpoint that it has listed, the writer's next one takes its
    // place, three times.
    Said notices;
    int64_t step = 1;
    int listed = 0;
    auto racing = std::make_shared<FaultyFileSystem>([&](int, const std::string& operation) {
      // Odd ones list, even ones load.
      if (operation != "open MANIFEST.json" || ++listed % 2 != 0 || step == 4) return;
      const auto before = folder / "run" / storage::folder_name(step);
      ++step;
      storage::FileSystem plain;
      storage::StagedFolder staged(plain, folder / "run", step);
      for (const auto& name : plain.entries(before)) {
        if (name == storage::kManifestName) continue;
        const auto bytes = test::read_file(before / name);
        staged.write(name, [&](storage::ByteSink& sink) { sink.write(bytes.data(), bytes.size()); });
      }
      staged.commit({.sequence = step, .world_size = 2});
      storage::remove_checkpoint(plain, folder / "run", step - 1);
    });
    CheckpointManager reader(folder / "run", group,
                             {.notify = [&](const std::string& text) { notices.add(text); }, .file_system = racing});
    const auto loaded = reader.load_latest({.model = run.net});
    RANK_REQUIRE(loaded.has_value());
    RANK_CHECK(loaded->step == 4);
    RANK_INFO("nothing was damaged");
    RANK_CHECK_THAT(notices.all(), IsEmpty());
  });
}

}  // namespace
}  // namespace ddp
