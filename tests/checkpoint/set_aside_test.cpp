// An earlier run's checkpoints make room for a new one's, and none is lost, wherever the move is interrupted.
#include "checkpoint/storage/set_aside.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/steps_in.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp::storage {
namespace {

using Catch::Matchers::IsEmpty;
using test::ElementsAre;
using test::FaultyFileSystem;
using test::steps_in;
using test::TemporaryFolder;
using test::UnorderedElementsAre;

void save_run(FileSystem& file_system, const std::filesystem::path& directory, int64_t step, int64_t sequence) {
  StagedFolder staged(file_system, directory, step);
  staged.write("model.safetensors", [](ByteSink& sink) { sink.write("weights", 7); });
  staged.commit({.sequence = sequence, .world_size = 1});
}

TEST_CASE("SetAside: each run goes into a folder of its own") {
  TemporaryFolder folder;
  const auto run = folder / "run";
  FileSystem files;
  UNSCOPED_INFO("there is no such directory");
  CHECK(set_aside_checkpoints(files, run) == std::nullopt);
  for (int64_t step : {1, 2}) save_run(files, run, step, step);
  test::write_file(run / "notes.txt", "mine");
  CHECK(newest_set_aside(files, run) == std::nullopt);
  CHECK(set_aside_checkpoints(files, run) == run / "previous-1");
  CHECK_THAT(steps_in(files, run), IsEmpty());
  CHECK_THAT(files.entries(run), ElementsAre("notes.txt", "previous-1"));
  CHECK_THAT(steps_in(files, run / "previous-1"), ElementsAre(2, 1));
  UNSCOPED_INFO("there is nothing left");
  CHECK(set_aside_checkpoints(files, run) == std::nullopt);

  save_run(files, run, 1, 1);
  CHECK(set_aside_checkpoints(files, run) == run / "previous-2");
  CHECK(newest_set_aside(files, run) == run / "previous-2");
  UNSCOPED_INFO("those stay");
  CHECK_THAT(steps_in(files, run / "previous-1"), ElementsAre(2, 1));
  CHECK_THAT(files.entries(run / "previous-2"), ElementsAre("latest", "step-00000001"));
}

TEST_CASE("SetAside: a failure anywhere loses none and moves the newest last") {
  int faults = 0;
  for (bool failed = true; failed; ++faults) {
    TemporaryFolder folder;
    const auto run = folder / "run";
    FileSystem files;
    // Steps say nothing about the order: step 1 was saved last, after a resume from an early checkpoint.
    save_run(files, run, 2, 1);
    save_run(files, run, 3, 2);
    save_run(files, run, 1, 3);
    FaultyFileSystem faulty([faults](int number, const std::string& operation) {
      if (number == faults) throw std::runtime_error("fault at " + operation);
    });
    try {
      set_aside_checkpoints(faulty, run);
      failed = false;
    } catch (const std::runtime_error&) {
    }
    auto kept = steps_in(files, run);
    if (!kept.empty()) {
      INFO("fault " << faults);
      CHECK(kept.front() == 1);
    }
    for (const auto step : steps_in(files, run / "previous-1")) kept.push_back(step);
    INFO("fault " << faults);
    CHECK_THAT(kept, UnorderedElementsAre(1, 2, 3));
  }
  INFO("the faults were met");
  CHECK(faults > 5);
}

}  // namespace
}  // namespace ddp::storage
