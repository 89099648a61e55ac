#include "checkpoint/checkpoint_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <set>
#include <string>

#include "checkpoint/safetensors.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/staged_folder.h"
#include "comm/collectives.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/nets.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using test::copy_of;
using test::equal;
using test::FaultyFileSystem;
using test::message_of;
using test::Net;
using test::run_ranks;
using test::TemporaryFolder;
using test::train;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Collects what ranks, which are threads here, say.
class Said {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(text);
  }
  std::vector<std::string> all() const { return texts_; }
  std::set<std::string> different() const { return {texts_.begin(), texts_.end()}; }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

// An object in the text form of save and load.
struct Counter {
  int64_t count = 0;
  bool refuses = false;
  std::string save() const { return std::to_string(count); }
  void load(const std::string& bytes) {
    if (refuses) throw std::runtime_error("the counter refuses");
    count = std::stoll(bytes);
  }
};

// The same in LibTorch's form.
struct ArchivedCounter {
  int64_t count = 0;
  void save(torch::serialize::OutputArchive& archive) const { archive.write("count", c10::IValue(count)); }
  void load(torch::serialize::InputArchive& archive) {
    c10::IValue value;
    archive.read("count", value);
    count = value.toInt();
  }
};

GroupHandle single_process() {
  static const auto group = init_process_group({.rank_info = RankInfo{}});
  return group;
}

std::vector<int64_t> steps_of(const CheckpointManager& manager) {
  std::vector<int64_t> steps;
  for (const auto& info : manager.list()) steps.push_back(info.step);
  return steps;
}

struct Training {
  Net net;
  torch::optim::Adam optimizer{net->parameters(), torch::optim::AdamOptions(0.01)};
};

// Ranks are threads, which share the random generator: they drew different weights.
void equalize(Training& run, const GroupHandle& group) {
  for (const auto& [name, tensor] : module_state(*run.net)) broadcast(tensor, 0, group);
}

TEST(CheckpointManager, EveryPartOfARunComesBackOnEveryRank) {
  for (const auto reader : {CheckpointReader::kRankZero, CheckpointReader::kEveryRank}) {
    const TemporaryFolder folder;
    run_ranks(3, [&](const GroupHandle& group) {
      Training run;
      equalize(run, group);
      train(run.net, run.optimizer, 0, 3);
      Counter scaler{.count = 65536}, own{.count = 100 + group.rank()};
      ArchivedCounter schedule{.count = 7};
      TrainingState state{.model = run.net,
                          .optimizer = run.optimizer,
                          .scaler = scaler,
                          .schedule = schedule,
                          .per_rank = {{"own", own}}};
      state.values.set("best", 0.75);
      state.values.set("name", "first");
      state.values.set("epoch", 12);
      state.values.set("history", JsonText{"[1, 2.5, null]"});
      CheckpointManager manager(folder / "run", group, {.reader = reader});
      EXPECT_FALSE(manager.load_latest(state).has_value());
      manager.save(1200, state, {.metrics = {{"loss", 0.5}}});
      const auto saved = copy_of(*run.net);
      train(run.net, run.optimizer, 3, 2);
      const auto expected = copy_of(*run.net);

      Training resumed;
      Counter new_scaler, new_own;
      ArchivedCounter new_schedule;
      const TrainingState into{.model = resumed.net,
                               .optimizer = resumed.optimizer,
                               .scaler = new_scaler,
                               .schedule = new_schedule,
                               .per_rank = {{"own", new_own}}};
      const auto loaded = manager.load_latest(into);
      ASSERT_TRUE(loaded.has_value());
      EXPECT_EQ(loaded->step, 1200);
      EXPECT_EQ(loaded->world_size, 3);
      EXPECT_EQ(loaded->metrics.at("loss"), 0.5);
      EXPECT_EQ(loaded->values.get<double>("best"), 0.75);
      EXPECT_EQ(loaded->values.get<std::string>("name"), "first");
      EXPECT_EQ(loaded->values.get<int64_t>("epoch"), 12);
      EXPECT_EQ(loaded->values.get<JsonText>("history").text, "[1,2.5,null]");
      EXPECT_TRUE(loaded->rng_restored);
      EXPECT_TRUE(equal(copy_of(*resumed.net), saved));
      EXPECT_EQ(new_scaler.count, 65536);
      EXPECT_EQ(new_schedule.count, 7);
      EXPECT_EQ(new_own.count, 100 + group.rank());
      train(resumed.net, resumed.optimizer, 3, 2);
      EXPECT_TRUE(equal(copy_of(*resumed.net), expected));
    });
  }
}

TEST(CheckpointManager, RandomStreamsGoOnWhereTheyWere) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  torch::manual_seed(3);
  torch::rand({5});
  manager.save(1, {});
  const auto expected = torch::rand({4});
  torch::rand({9});
  const auto loaded = manager.load(1, {});
  EXPECT_TRUE(loaded.rng_restored);
  EXPECT_TRUE(torch::rand({4}).equal(expected));
}

TEST(CheckpointManager, AnotherWorldSizeStartsNewRandomStreamsAndSaysSo) {
  const TemporaryFolder folder;
  run_ranks(2, [&](const GroupHandle& group) {
    Training run;
    CheckpointManager manager(folder / "run", group);
    manager.save(1, {.model = run.net});
  });
  Said notices;
  run_ranks(3, [&](const GroupHandle& group) {
    Training run;
    CheckpointManager manager(folder / "run", group, {.notify = [&](const std::string& text) { notices.add(text); }});
    const auto loaded = manager.load_latest({.model = run.net});
    EXPECT_EQ(loaded->world_size, 2);
    EXPECT_FALSE(loaded->rng_restored);
  });
  EXPECT_THAT(notices.all(), ElementsAre(HasSubstr("saved by 2 ranks, and these are 3")));
}

TEST(CheckpointManager, ADamagedCheckpointIsPassedOverLoudly) {
  const TemporaryFolder folder;
  Said notices;
  run_ranks(2, [&](const GroupHandle& group) {
    Training run;
    equalize(run, group);
    CheckpointManager manager(folder / "run", group, {.notify = [&](const std::string& text) { notices.add(text); }});
    const TrainingState state{.model = run.net, .optimizer = run.optimizer};
    std::vector<TensorMap> saved;
    for (int64_t step = 1; step <= 4; ++step) {
      train(run.net, run.optimizer, step, 1);
      saved.push_back(copy_of(*run.net));
      manager.save(step, state);
    }
    if (group.rank() == 0) {
      // Step 4 lost its manifest, step 3 a bit.
      std::filesystem::remove(folder / "run" / "step-00000004" / "MANIFEST.json");
      auto bytes = test::read_file(folder / "run" / "step-00000003" / "optim.safetensors");
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
      test::write_file(folder / "run" / "step-00000003" / "optim.safetensors", bytes);
    }
    barrier(group);
    const auto loaded = manager.load_latest(state);
    EXPECT_EQ(loaded->step, 2);
    EXPECT_TRUE(equal(copy_of(*run.net), saved[1]));
    const auto before = copy_of(*run.net);
    EXPECT_THAT(message_of([&] { manager.load(3, state); }), HasSubstr("the bytes of optim.safetensors"));
    EXPECT_THAT(message_of([&] { manager.load(9, state); }), HasSubstr("there is no"));
    EXPECT_TRUE(equal(copy_of(*run.net), before));
  });
  EXPECT_THAT(notices.all(), ElementsAre(AllOf(HasSubstr("passed over"), HasSubstr("step-00000004")),
                                         AllOf(HasSubstr("passed over"), HasSubstr("step-00000003"))));
}

TEST(CheckpointManager, WhenAllCheckpointsAreDamagedNothingStartsFromScratch) {
  const TemporaryFolder folder;
  Training run;
  CheckpointManager manager(folder / "run", single_process(), {.notify = [](const std::string&) {}});
  manager.save(1, {.model = run.net});
  std::filesystem::resize_file(folder / "run" / "step-00000001" / "model.safetensors", 10);
  EXPECT_THAT(message_of([&] { manager.load_latest({.model = run.net}); }), HasSubstr("no valid checkpoint is left"));
}

TEST(CheckpointManager, WhenOneRanksStateDoesNotFitNoRankChanges) {
  const TemporaryFolder folder;
  Said messages;
  run_ranks(3, [&](const GroupHandle& group) {
    Training run;
    Counter counter{.count = 5};
    CheckpointManager manager(folder / "run", group);
    manager.save(1, {.model = run.net, .optimizer = run.optimizer, .shared = {{"counter", counter}}});
    train(run.net, run.optimizer, 0, 1);
    counter.count = 6;
    // An object refuses on rank 2 alone, after others have taken their state.
    Counter refusing{.count = 8, .refuses = group.rank() == 2};
    const auto before = copy_of(*run.net);
    messages.add(message_of([&] {
      manager.load_latest({.model = run.net, .optimizer = run.optimizer, .shared = {{"counter", refusing}}});
    }));
    EXPECT_EQ(refusing.count, 8);
    EXPECT_TRUE(equal(copy_of(*run.net), before));
    Net other(group.rank() == 1 ? 4 : 3);
    const auto untouched = copy_of(*other);
    messages.add(message_of([&] { manager.load_latest({.model = other}); }));
    EXPECT_TRUE(equal(copy_of(*other), untouched));
  });
  EXPECT_EQ(messages.different().size(), 2) << "all ranks must get the same text";
  EXPECT_THAT(messages.different(),
              ::testing::UnorderedElementsAre(AllOf(HasSubstr("on rank 2: "), HasSubstr("the counter refuses")),
                                              AllOf(HasSubstr("on rank 1: "), HasSubstr("does not fit the model"))));
}

TEST(CheckpointManager, AFailureOnAnyRankIsEveryRanksAndTrainingCanGoOn) {
  const TemporaryFolder folder;
  Said messages;
  run_ranks(2, [&](const GroupHandle& group) {
    Training run;
    auto faulty = std::make_shared<FaultyFileSystem>([&](int number, const std::string& operation) {
      if (number == 12) throw std::system_error(ENOSPC, std::generic_category(), "injected: " + operation);
    });
    CheckpointManager manager(folder / "run", group, {.file_system = faulty});
    messages.add(message_of([&] { manager.save(1, {.model = run.net}); }));
    manager.save(2, {.model = run.net});
    struct Broken {
      bool breaks;
      std::string save() const { return breaks ? throw std::runtime_error("no state to be had") : "x"; }
      void load(const std::string&) {}
    } broken{.breaks = group.rank() == 1};
    messages.add(message_of([&] { manager.save(3, {.model = run.net, .per_rank = {{"broken", broken}}}); }));
    messages.add(message_of([&] { manager.save(4 + group.rank(), {.model = run.net}); }));
    EXPECT_THAT(steps_of(manager), ElementsAre(2));
    EXPECT_EQ(manager.load_latest({.model = run.net})->step, 2);
  });
  EXPECT_THAT(
      messages.different(),
      ::testing::UnorderedElementsAre(
          AllOf(HasSubstr("step 1 was not saved"), HasSubstr("No space left")),
          AllOf(HasSubstr("step 3 was not saved"), HasSubstr("on rank 1: no state to be had")),
          AllOf(HasSubstr("step 4 was not saved"), HasSubstr("on rank 1: it saves step 5, but rank 0 step 4"))));
}

TEST(CheckpointManager, ARankThatIsGoneDuringASaveLeavesTheOlderCheckpointIntact) {
  const TemporaryFolder folder;
  Said messages;
  try {
    run_ranks(2,
              [&](const GroupHandle& group) {
                Training run;
                CheckpointManager manager(folder / "run", group);
                manager.save(1, {.model = run.net});
                if (group.rank() == 1) throw std::runtime_error("rank 1 dies");
                messages.add(message_of([&] { manager.save(2, {.model = run.net}); }));
              },
              {.timeout = std::chrono::seconds(5)});
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 dies"));
  }
  EXPECT_THAT(messages.all(), ElementsAre(HasSubstr("rank")));
  const auto names = storage::FileSystem().entries(folder / "run");
  EXPECT_THAT(names, ElementsAre("latest", "step-00000001", "writer.lock"));
}

TEST(CheckpointManager, OldCheckpointsAreRemovedByTheRulesAndNeverTheNewestValid) {
  const TemporaryFolder folder;
  Training run;
  {
    CheckpointManager manager(
        folder / "run", single_process(),
        {.keep_last = 2, .keep_every = 5, .keep_best = KeepBest{.metric = "accuracy", .higher_is_better = true}});
    for (int64_t step = 1; step <= 9; ++step) {
      manager.save(step, {.model = run.net}, {.metrics = {{"accuracy", step == 3 ? 0.9 : 0.1}}});
    }
    EXPECT_THAT(steps_of(manager), ElementsAre(9, 8, 5, 3));
  }
  // The two newest are damaged inside, which their sizes do not show.
  for (const char* name : {"step-00000009", "step-00000008"}) {
    auto bytes = test::read_file(folder / "run" / name / "model.safetensors");
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    test::write_file(folder / "run" / name / "model.safetensors", bytes);
  }
  CheckpointManager strict(folder / "run", single_process(), {.keep_last = 1, .notify = [](const std::string&) {}});
  strict.prune();
  EXPECT_THAT(steps_of(strict), ElementsAre(9, 8, 5));
  EXPECT_EQ(strict.load_latest({.model = run.net})->step, 5);
}

TEST(CheckpointManager, ARunThatWentBackKeepsWhatItSaves) {
  const TemporaryFolder folder;
  Training run;
  CheckpointManager manager(folder / "run", single_process(), {.keep_last = 2});
  for (const int64_t step : {10, 20, 30}) manager.save(step, {.model = run.net});
  manager.load(20, {.model = run.net});
  train(run.net, run.optimizer, 0, 1);
  manager.save(15, {.model = run.net});
  EXPECT_THAT(steps_of(manager), ElementsAre(15, 30));
  manager.save(20, {.model = run.net});
  EXPECT_THAT(steps_of(manager), ElementsAre(20, 15));
  EXPECT_TRUE(equal(load_safetensors(folder / "run" / "step-00000020" / "model.safetensors"), copy_of(*run.net)));
}

TEST(CheckpointManager, TheNewestIsWhatWasSavedLastAndNotTheMostSteps) {
  const TemporaryFolder folder;
  run_ranks(2, [&](const GroupHandle& group) {
    Training run;
    {
      CheckpointManager manager(folder / "run", group);
      for (const int64_t step : {10, 20, 30}) manager.save(step, {.model = run.net});
      manager.load(10, {.model = run.net});
      manager.save(15, {.model = run.net});
      EXPECT_EQ(manager.load_latest({.model = run.net})->step, 15) << "30 was abandoned";
    }
    barrier(group);
    CheckpointManager later(folder / "run", group);
    EXPECT_EQ(later.load_latest({.model = run.net})->step, 15);
    later.save(16, {.model = run.net});
    EXPECT_THAT(steps_of(later), ElementsAre(16, 15, 30, 20, 10));
  });
}

TEST(CheckpointManager, ASecondOneThatSavesIsRefusedOnAllRanksAndLoadsAllTheSame) {
  const TemporaryFolder folder;
  Said messages;
  for (const bool async : {false, true}) {
    run_ranks(2, [&](const GroupHandle& group) {
      Training run;
      CheckpointManager first(folder / "run", group), second(folder / "run", group, {.async = async});
      EXPECT_FALSE(second.load_latest({.model = run.net}).has_value() && !async);
      first.claim();
      messages.add(message_of([&] { second.claim(); }));
      messages.add(message_of([&] { second.save(1, {.model = run.net}); }));
      messages.add(message_of([&] { second.prune(); }));
      first.save(2, {.model = run.net});
      EXPECT_EQ(second.load_latest({.model = run.net})->step, 2);
      EXPECT_THAT(steps_of(second), ElementsAre(2));
    });
  }
  EXPECT_EQ(messages.all().size(), 12);
  EXPECT_THAT(messages.all(), ::testing::Each(AllOf(HasSubstr("is saved into by another CheckpointManager"),
                                                    HasSubstr("process " + std::to_string(::getpid())))));
}

TEST(CheckpointManager, LoadingNeedsNoRightToWriteAndLeavesWhatOthersAreWriting) {
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
  EXPECT_EQ(reader.load_latest({.model = run.net})->step, 1);
  EXPECT_EQ(reader.load(1, {.model = run.net}).step, 1);
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "step-00000002.tmp-1"));
  EXPECT_THAT(message_of([&] { reader.save(2, {.model = run.net}); }), HasSubstr("Read-only file system"));
  CheckpointManager writer(folder / "run", single_process());
  writer.save(3, {.model = run.net});
  EXPECT_FALSE(std::filesystem::exists(folder / "run" / "step-00000002.tmp-1")) << "the one that saves cleans up";
}

TEST(CheckpointManager, WithoutLocksItSaysSoOnceAndLeavesWhatMayBeAnothers) {
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
  EXPECT_THAT(notices.all(), ElementsAre(HasSubstr("without locks")));
  CheckpointManager other(folder / "run", single_process(), options);
  other.save(20, {.model = run.net});
  one.save(5, {.model = run.net});
  EXPECT_THAT(steps_of(one), ElementsAre(5, 20, 10, 30)) << "numbered one after the other all the same";
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "step-00000002.tmp-1"));
}

TEST(CheckpointManager, LoadLatestGoesOnToTheNextOneWhenRetentionRemovesItsOwn) {
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
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->step, 4);
    EXPECT_THAT(notices.all(), IsEmpty()) << "nothing was damaged";
  });
}

TEST(CheckpointManager, ValuesAndMetricsThatAreNotFiniteComeBack) {
  const TemporaryFolder folder;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  CheckpointManager manager(folder / "run", single_process());
  TrainingState state;
  state.values.set("best", kInfinity);
  manager.save(1, state, {.metrics = {{"loss", -kInfinity}}});
  const auto loaded = manager.load_latest(state);
  EXPECT_EQ(loaded->values.get<double>("best"), kInfinity);
  EXPECT_EQ(loaded->metrics.at("loss"), -kInfinity);
}

TEST(CheckpointManager, AnAsynchronousSaveHoldsTheStateOfItsStep) {
  const TemporaryFolder folder;
  run_ranks(2, [&](const GroupHandle& group) {
    // The writer stands still until training has gone on.
    std::atomic<bool> may_write{true};
    auto slow = std::make_shared<FaultyFileSystem>([&](int, const std::string&) { may_write.wait(false); });
    Training run;
    equalize(run, group);
    train(run.net, run.optimizer, 0, 2);
    const auto saved = copy_of(*run.net);
    CheckpointManager manager(folder / "run", group, {.async = true, .file_system = slow});
    manager.claim();
    may_write = false;
    const TrainingState state{.model = run.net, .optimizer = run.optimizer};
    manager.save(1, state);
    train(run.net, run.optimizer, 2, 3);
    may_write = true;
    may_write.notify_all();
    manager.save(2, state);  // into the same buffers, once the first is written
    manager.wait();
    Training other;
    manager.load(1, {.model = other.net, .optimizer = other.optimizer});
    EXPECT_TRUE(equal(copy_of(*other.net), saved));
    manager.load(2, {.model = other.net, .optimizer = other.optimizer});
    EXPECT_TRUE(equal(copy_of(*other.net), copy_of(*run.net)));
  });
}

TEST(CheckpointManager, AFailedAsynchronousSaveIsReportedAtTheNextCallAndAtExit) {
  const TemporaryFolder folder;
  Said messages, notices;
  run_ranks(2, [&](const GroupHandle& group) {
    std::atomic<bool> fails{true};
    auto faulty = std::make_shared<FaultyFileSystem>([&](int, const std::string& operation) {
      if (fails && operation.starts_with("sync")) throw std::system_error(EIO, std::generic_category(), operation);
    });
    Training run;
    {
      CheckpointManager manager(
          folder / "run", group,
          {.async = true, .notify = [&](const std::string& text) { notices.add(text); }, .file_system = faulty});
      manager.save(1, {.model = run.net});
      messages.add(message_of([&] { manager.wait(); }));
      manager.wait();
      manager.save(2, {.model = run.net});
      messages.add(message_of([&] { manager.save(3, {.model = run.net}); }));
    }
    barrier(group);
    fails = false;
    CheckpointManager manager(folder / "run", group, {.file_system = faulty});
    EXPECT_THAT(steps_of(manager), IsEmpty());
  });
  EXPECT_THAT(messages.different(), SizeIs(2));
  EXPECT_THAT(messages.all(), ::testing::Contains(HasSubstr("step 1 was not saved")).Times(2));
  EXPECT_THAT(messages.all(), ::testing::Contains(HasSubstr("step 2 was not saved")).Times(2));
  EXPECT_THAT(notices.all(), ElementsAre(HasSubstr("step 3 was not saved")));
}

TEST(CheckpointManager, PartialAndLenientLoadsListWhatTheyLeftOut) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  Training run;
  manager.save(1, {.model = run.net});

  Net partly;
  const auto before = copy_of(*partly);
  manager.load(1, {.model = partly}, {.only = {"fc1", "bn.running_*"}});
  const auto after = copy_of(*partly);
  const auto saved = copy_of(*run.net);
  EXPECT_TRUE(after.at("fc1.weight").equal(saved.at("fc1.weight")));
  EXPECT_TRUE(after.at("fc2.weight").equal(before.at("fc2.weight")));

  Net other_head(5);
  EXPECT_THAT(message_of([&] { manager.load(1, {.model = other_head}, {.strict = false}); }),
              HasSubstr("'fc2.weight' is Float [5, 8] in the model"));
  manager.load(1, {.model = other_head}, {.skip = {"fc2"}});
  EXPECT_TRUE(copy_of(*other_head).at("fc1.bias").equal(saved.at("fc1.bias")));
  EXPECT_THAT(message_of([&] { manager.load(1, {.model = other_head}, {.only = {"nothing"}}); }),
              HasSubstr("no name of the model"));

  torch::nn::Linear small(4, 8);
  struct Holder : torch::nn::Module {
    explicit Holder(const torch::nn::Linear& linear) {
      register_module("fc1", linear);
      register_module("extra", torch::nn::Linear(2, 2));
    }
  } holder(small);
  const auto loaded = manager.load(1, {.model = holder, .scaler = *std::make_unique<Counter>()}, {.strict = false});
  EXPECT_THAT(loaded.missing, ElementsAre("extra.bias", "extra.weight", "scaler.state"));
  EXPECT_THAT(loaded.unexpected, ::testing::Contains("fc2.weight"));
  EXPECT_THAT(message_of([&] {
                Counter scaler;
                manager.load(1, {.model = run.net, .scaler = scaler});
              }),
              HasSubstr("holds no scaler.state"));
}

TEST(CheckpointManager, FrozenLayersTakeNoGradient) {
  Net net;
  EXPECT_THAT(freeze_layers(net, {"fc1", "*.bias"}), ElementsAre("fc1.weight", "fc1.bias", "bn.bias", "fc2.bias"));
  EXPECT_FALSE(net->fc1->weight.requires_grad());
  EXPECT_TRUE(net->fc2->weight.requires_grad());
  EXPECT_THAT(message_of([&] { freeze_layers(net, {"fc9"}); }), HasSubstr("no parameter of the model matches 'fc9'"));
}

TEST(CheckpointManager, SeveralOptimizersKeepTheirOwnFiles) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  Net net;
  torch::optim::SGD first(net->fc1->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::Adam second(net->fc2->parameters());
  train(net, first, 0, 1);
  second.step();
  manager.save(1, {.model = net, .optimizer = first, .optimizers = {{"head", second}}});
  EXPECT_TRUE(std::filesystem::exists(folder / "run/step-00000001/optim-head.safetensors"));
  first.param_groups()[0].options().set_lr(9);
  second.state().clear();
  manager.load(1, {.model = net, .optimizer = first, .optimizers = {{"head", second}}});
  EXPECT_EQ(first.param_groups()[0].options().get_lr(), 0.1);
  EXPECT_EQ(second.state().size(), 2);
}

TEST(CheckpointManager, WrongArgumentsAreRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  EXPECT_THROW(CheckpointManager(folder / "run", single_process(), {.keep_last = 0}), std::invalid_argument);
  CheckpointManager manager(folder / "run", single_process());
  Training run;
  EXPECT_THROW(manager.save(-1, {.model = run.net}), std::invalid_argument);
  EXPECT_THAT(message_of([&] { manager.save(1, {.optimizer = run.optimizer}); }), HasSubstr("give the model too"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

}  // namespace
}  // namespace ddp
