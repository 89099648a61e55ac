// An earlier run's checkpoints make room for a new one's, and none is lost, wherever the move is interrupted.
#include "checkpoint/storage/set_aside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/staged_folder.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/steps_in.h"
#include "tests/checkpoint/temporary_folder.h"

namespace ddp::storage {
namespace {

using test::FaultyFileSystem;
using test::steps_in;
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

void save(FileSystem& file_system, const std::filesystem::path& directory, int64_t step, int64_t sequence) {
  StagedFolder staged(file_system, directory, step);
  staged.write("model.safetensors", [](ByteSink& sink) { sink.write("weights", 7); });
  staged.commit({.sequence = sequence, .world_size = 1});
}

TEST(SetAside, each_run_goes_into_a_folder_of_its_own) {
  TemporaryFolder folder;
  const auto run = folder / "run";
  FileSystem files;
  EXPECT_EQ(set_aside_checkpoints(files, run), std::nullopt) << "there is no such directory";
  for (int64_t step : {1, 2}) save(files, run, step, step);
  test::write_file(run / "notes.txt", "mine");
  EXPECT_EQ(set_aside_checkpoints(files, run), run / "previous-1");
  EXPECT_THAT(steps_in(files, run), IsEmpty());
  EXPECT_THAT(files.entries(run), ElementsAre("notes.txt", "previous-1"));
  EXPECT_THAT(steps_in(files, run / "previous-1"), ElementsAre(2, 1));
  EXPECT_EQ(set_aside_checkpoints(files, run), std::nullopt) << "there is nothing left";

  save(files, run, 1, 1);
  EXPECT_EQ(set_aside_checkpoints(files, run), run / "previous-2");
  EXPECT_THAT(steps_in(files, run / "previous-1"), ElementsAre(2, 1)) << "those stay";
  EXPECT_THAT(files.entries(run / "previous-2"), ElementsAre("latest", "step-00000001"));
}

TEST(SetAside, a_failure_anywhere_loses_none_and_moves_the_newest_last) {
  int faults = 0;
  for (bool failed = true; failed; ++faults) {
    TemporaryFolder folder;
    const auto run = folder / "run";
    FileSystem files;
    // Steps say nothing about the order: step 1 was saved last, after a resume from an early checkpoint.
    save(files, run, 2, 1);
    save(files, run, 3, 2);
    save(files, run, 1, 3);
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
      EXPECT_EQ(kept.front(), 1) << "fault " << faults;
    }
    for (const auto step : steps_in(files, run / "previous-1")) kept.push_back(step);
    EXPECT_THAT(kept, ::testing::UnorderedElementsAre(1, 2, 3)) << "fault " << faults;
  }
  EXPECT_GT(faults, 5) << "the faults were met";
}

}  // namespace
}  // namespace ddp::storage
