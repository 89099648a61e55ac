#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/comm/collectives.h>

#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/staged_folder.h"
#include "tests/checkpoint/faulty_file_system.h"
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
using Catch::Matchers::Contains;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::SizeIs;
using test::copy_of;
using test::ElementsAre;
using test::equal;
using test::error_of;
using test::FaultyFileSystem;
using test::Net;
using test::run_ranks;
using test::TemporaryFolder;
using test::train;
using test::UnorderedElementsAre;

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

TEST_CASE("CheckpointManager: every part of a run comes back on every rank") {
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
      RANK_CHECK_FALSE(manager.load_latest(state).has_value());
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
      RANK_REQUIRE(loaded.has_value());
      RANK_CHECK(loaded->step == 1200);
      RANK_CHECK(loaded->world_size == 3);
      RANK_CHECK(loaded->metrics.at("loss") == 0.5);
      RANK_CHECK(loaded->values.get<double>("best") == 0.75);
      RANK_CHECK(loaded->values.get<std::string>("name") == "first");
      RANK_CHECK(loaded->values.get<int64_t>("epoch") == 12);
      RANK_CHECK(loaded->values.get<JsonText>("history").text == "[1,2.5,null]");
      RANK_CHECK(loaded->rng_restored);
      RANK_CHECK(equal(copy_of(*resumed.net), saved));
      RANK_CHECK(new_scaler.count == 65536);
      RANK_CHECK(new_schedule.count == 7);
      RANK_CHECK(new_own.count == 100 + group.rank());
      train(resumed.net, resumed.optimizer, 3, 2);
      RANK_CHECK(equal(copy_of(*resumed.net), expected));
    });
  }
}

TEST_CASE("CheckpointManager: random streams go on where they were") {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  torch::manual_seed(3);
  torch::rand({5});
  manager.save(1, {});
  const auto expected = torch::rand({4});
  torch::rand({9});
  const auto loaded = manager.load(1, {});
  CHECK(loaded.rng_restored);
  CHECK(torch::rand({4}).equal(expected));
}

TEST_CASE("CheckpointManager: another world size starts new random streams and says so") {
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
    RANK_CHECK(loaded->world_size == 2);
    RANK_CHECK_FALSE(loaded->rng_restored);
  });
  CHECK_THAT(notices.all(), ElementsAre(ContainsSubstring("saved by 2 ranks, and these are 3")));
}

TEST_CASE("CheckpointManager: a damaged checkpoint is passed over loudly") {
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
    RANK_CHECK(loaded->step == 2);
    RANK_CHECK(equal(copy_of(*run.net), saved[1]));
    const auto before = copy_of(*run.net);
    RANK_CHECK_THAT(error_of([&] { manager.load(3, state); }), ContainsSubstring("the bytes of optim.safetensors"));
    RANK_CHECK_THAT(error_of([&] { manager.load(9, state); }), ContainsSubstring("there is no"));
    RANK_CHECK(equal(copy_of(*run.net), before));
  });
  CHECK_THAT(notices.all(), ElementsAre(ContainsSubstring("passed over") && ContainsSubstring("step-00000004"),
                                        ContainsSubstring("passed over") && ContainsSubstring("step-00000003")));
}

TEST_CASE("CheckpointManager: when all checkpoints are damaged nothing starts from scratch") {
  const TemporaryFolder folder;
  Training run;
  CheckpointManager manager(folder / "run", single_process(), {.notify = [](const std::string&) {}});
  manager.save(1, {.model = run.net});
  std::filesystem::resize_file(folder / "run" / "step-00000001" / "model.safetensors", 10);
  CHECK_THROWS_WITH(manager.load_latest({.model = run.net}), ContainsSubstring("no valid checkpoint is left"));
}

TEST_CASE("CheckpointManager: when one rank's state does not fit no rank changes") {
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
    messages.add(error_of([&] {
      manager.load_latest({.model = run.net, .optimizer = run.optimizer, .shared = {{"counter", refusing}}});
    }));
    RANK_CHECK(refusing.count == 8);
    RANK_CHECK(equal(copy_of(*run.net), before));
    Net other(group.rank() == 1 ? 4 : 3);
    const auto untouched = copy_of(*other);
    messages.add(error_of([&] { manager.load_latest({.model = other}); }));
    RANK_CHECK(equal(copy_of(*other), untouched));
  });
  UNSCOPED_INFO("all ranks must get the same text");
  CHECK(messages.different().size() == 2);
  CHECK_THAT(messages.different(),
             UnorderedElementsAre(ContainsSubstring("on rank 2: ") && ContainsSubstring("the counter refuses"),
                                  ContainsSubstring("on rank 1: ") && ContainsSubstring("does not fit the model")));
}

TEST_CASE("CheckpointManager: a failure on any rank is every rank's and training can go on") {
  const TemporaryFolder folder;
  Said messages;
  run_ranks(2, [&](const GroupHandle& group) {
    Training run;
    auto faulty = std::make_shared<FaultyFileSystem>([&](int number, const std::string& operation) {
      if (number == 12) throw std::system_error(ENOSPC, std::generic_category(), "injected: " + operation);
    });
    CheckpointManager manager(folder / "run", group, {.file_system = faulty});
    messages.add(error_of([&] { manager.save(1, {.model = run.net}); }));
    manager.save(2, {.model = run.net});
    struct Broken {
      bool breaks;
      std::string save() const { return breaks ? throw std::runtime_error("no state to be had") : "x"; }
      void load(const std::string&) {}
    } broken{.breaks = group.rank() == 1};
    messages.add(error_of([&] { manager.save(3, {.model = run.net, .per_rank = {{"broken", broken}}}); }));
    messages.add(error_of([&] { manager.save(4 + group.rank(), {.model = run.net}); }));
    RANK_CHECK_THAT(steps_of(manager), ElementsAre(2));
    RANK_CHECK(manager.load_latest({.model = run.net})->step == 2);
  });
  CHECK_THAT(messages.different(),
             UnorderedElementsAre(
                 ContainsSubstring("step 1 was not saved") && ContainsSubstring("No space left"),
                 ContainsSubstring("step 3 was not saved") && ContainsSubstring("on rank 1: no state to be had"),
                 ContainsSubstring("step 4 was not saved") &&
                     ContainsSubstring("on rank 1: it saves step 5, but rank 0 step 4")));
}

TEST_CASE("CheckpointManager: a rank that is gone during a save leaves the older checkpoint intact") {
  const TemporaryFolder folder;
  Said messages;
  try {
    run_ranks(2,
              [&](const GroupHandle& group) {
                Training run;
                CheckpointManager manager(folder / "run", group);
                manager.save(1, {.model = run.net});
                if (group.rank() == 1) throw std::runtime_error("rank 1 dies");
                messages.add(error_of([&] { manager.save(2, {.model = run.net}); }));
              },
              {.timeout = std::chrono::seconds(5)});
  } catch (const std::runtime_error& error) {
    CHECK_THAT(error.what(), ContainsSubstring("rank 1 dies"));
  }
  CHECK_THAT(messages.all(), ElementsAre(ContainsSubstring("rank")));
  const auto names = storage::FileSystem().entries(folder / "run");
  CHECK_THAT(names, ElementsAre("latest", "step-00000001", "writer.lock"));
}

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
  CHECK_THAT(messages.all(), AllMatch(ContainsSubstring("is saved into by another CheckpointManager") &&
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

TEST_CASE("CheckpointManager: values and metrics that are not finite come back") {
  const TemporaryFolder folder;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  CheckpointManager manager(folder / "run", single_process());
  TrainingState state;
  state.values.set("best", kInfinity);
  manager.save(1, state, {.metrics = {{"loss", -kInfinity}}});
  const auto loaded = manager.load_latest(state);
  CHECK(loaded->values.get<double>("best") == kInfinity);
  CHECK(loaded->metrics.at("loss") == -kInfinity);
}

TEST_CASE("CheckpointManager: an asynchronous save holds the state of its step") {
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
    RANK_CHECK(equal(copy_of(*other.net), saved));
    manager.load(2, {.model = other.net, .optimizer = other.optimizer});
    RANK_CHECK(equal(copy_of(*other.net), copy_of(*run.net)));
  });
}

TEST_CASE("CheckpointManager: a failed asynchronous save is reported at the next call and at exit") {
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
      messages.add(error_of([&] { manager.wait(); }));
      manager.wait();
      manager.save(2, {.model = run.net});
      messages.add(error_of([&] { manager.save(3, {.model = run.net}); }));
    }
    barrier(group);
    fails = false;
    CheckpointManager manager(folder / "run", group, {.file_system = faulty});
    RANK_CHECK_THAT(steps_of(manager), IsEmpty());
  });
  CHECK_THAT(messages.different(), SizeIs(2));
  const auto times_said = [&messages](const char* text) {
    const auto all = messages.all();
    return std::ranges::count_if(all,
                                 [&](const std::string& message) { return message.find(text) != std::string::npos; });
  };
  CHECK(times_said("step 1 was not saved") == 2);
  CHECK(times_said("step 2 was not saved") == 2);
  CHECK_THAT(notices.all(), ElementsAre(ContainsSubstring("step 3 was not saved")));
}

TEST_CASE("CheckpointManager: a rank short of descriptors goes back to no older checkpoint") {
  const TemporaryFolder folder;
  {
    CheckpointManager manager(folder / "run", single_process());
    Training run;
    for (const int64_t step : {1, 2}) manager.save(step, {.model = run.net, .rng = false});
  }
  for (const auto reader : {CheckpointReader::kRankZero, CheckpointReader::kEveryRank}) {
    // Every operation of either rank's load fails once.
    for (int at = 0, failures = 1; failures > 0; ++at) {
      std::atomic<int> failed{0};
      Said messages, notices;
      run_ranks(2, [&](const GroupHandle& group) {
        const bool is_faulty = group.rank() == (reader == CheckpointReader::kEveryRank ? 1 : 0);
        auto files = std::make_shared<FaultyFileSystem>([&, is_faulty](int number, const std::string& operation) {
          if (!is_faulty || number != at) return;
          ++failed;
          throw std::system_error(EMFILE, std::generic_category(), "injected: " + operation);
        });
        CheckpointManager manager(
            folder / "run", group,
            {.reader = reader, .notify = [&](const std::string& text) { notices.add(text); }, .file_system = files});
        Net net;
        const auto before = copy_of(*net);
        std::optional<LoadedCheckpoint> loaded;
        const auto message = error_of([&] { loaded = manager.load_latest({.model = net, .rng = false}); });
        messages.add(message);
        RANK_CHECK(loaded.has_value() == (message == "no error"));
        if (loaded) RANK_CHECK(loaded->step == 2);
        if (!loaded) RANK_CHECK(equal(copy_of(*net), before));
      });
      failures = failed;
      INFO("operation " << at);
      CHECK_THAT(notices.all(), IsEmpty());
      REQUIRE_THAT(messages.different(), SizeIs(1));
      if (failures == 0) CHECK(*messages.different().begin() == "no error");
      if (failures > 0) {
        CHECK_THAT(*messages.different().begin(), ContainsSubstring("cannot load from ") &&
                                                      ContainsSubstring("injected: ") &&
                                                      ContainsSubstring("Too many open files"));
      }
    }
  }
}

TEST_CASE("CheckpointManager: partial and lenient loads list what they left out") {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  Training run;
  manager.save(1, {.model = run.net});

  Net partly;
  const auto before = copy_of(*partly);
  manager.load(1, {.model = partly}, {.only = {"fc1", "bn.running_*"}});
  const auto after = copy_of(*partly);
  const auto saved = copy_of(*run.net);
  CHECK(after.at("fc1.weight").equal(saved.at("fc1.weight")));
  CHECK(after.at("fc2.weight").equal(before.at("fc2.weight")));

  Net other_head(5);
  CHECK_THROWS_WITH(manager.load(1, {.model = other_head}, {.strict = false}),
                    ContainsSubstring("'fc2.weight' is Float [5, 8] in the model"));
  manager.load(1, {.model = other_head}, {.skip = {"fc2"}});
  CHECK(copy_of(*other_head).at("fc1.bias").equal(saved.at("fc1.bias")));
  CHECK_THROWS_WITH(manager.load(1, {.model = other_head}, {.only = {"nothing"}}),
                    ContainsSubstring("no name of the model"));

  torch::nn::Linear small(4, 8);
  struct Holder : torch::nn::Module {
    explicit Holder(const torch::nn::Linear& linear) {
      register_module("fc1", linear);
      register_module("extra", torch::nn::Linear(2, 2));
    }
  } holder(small);
  const auto loaded = manager.load(1, {.model = holder, .scaler = *std::make_unique<Counter>()}, {.strict = false});
  CHECK_THAT(loaded.missing, ElementsAre("extra.bias", "extra.weight", "scaler.state"));
  CHECK_THAT(loaded.unexpected, Contains("fc2.weight"));
  CHECK_THROWS_WITH(
      [&] {
        Counter scaler;
        manager.load(1, {.model = run.net, .scaler = scaler});
      }(),
      ContainsSubstring("holds no scaler.state"));
}

TEST_CASE("CheckpointManager: frozen layers take no gradient") {
  Net net;
  CHECK_THAT(freeze_layers(net, {"fc1", "*.bias"}), ElementsAre("fc1.weight", "fc1.bias", "bn.bias", "fc2.bias"));
  CHECK_FALSE(net->fc1->weight.requires_grad());
  CHECK(net->fc2->weight.requires_grad());
  CHECK_THROWS_WITH(freeze_layers(net, {"fc9"}), ContainsSubstring("no parameter of the model matches 'fc9'"));
}

TEST_CASE("CheckpointManager: all layers but the named ones can be frozen, and the rest is the optimizer's") {
  Net net;
  CHECK_THROWS_WITH(freeze_all_but(net, {"fc9"}), ContainsSubstring("no parameter of the model matches 'fc9'"));
  CHECK(trainable_parameters(net).size() == net->parameters().size());
  freeze_all_but(net, {"fc2"});
  const auto trained = trainable_parameters(net);
  REQUIRE(trained.size() == 2);
  CHECK(trained[0].is_same(net->fc2->weight));
  CHECK(trained[1].is_same(net->fc2->bias));
}

TEST_CASE("CheckpointManager: several optimizers keep their own files") {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  Net net;
  torch::optim::SGD first(net->fc1->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::Adam second(net->fc2->parameters());
  train(net, first, 0, 1);
  second.step();
  manager.save(1, {.model = net, .optimizer = first, .optimizers = {{"head", second}}});
  CHECK(std::filesystem::exists(folder / "run/step-00000001/optim-head.safetensors"));
  first.param_groups()[0].options().set_lr(9);
  second.state().clear();
  manager.load(1, {.model = net, .optimizer = first, .optimizers = {{"head", second}}});
  CHECK(first.param_groups()[0].options().get_lr() == 0.1);
  CHECK(second.state().size() == 2);
}

TEST_CASE("CheckpointManager: wrong arguments are refused before anything is written") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(CheckpointManager(folder / "run", single_process(), {.keep_last = 0}), std::invalid_argument);
  CheckpointManager manager(folder / "run", single_process());
  Training run;
  CHECK_THROWS_AS(manager.save(-1, {.model = run.net}), std::invalid_argument);
  CHECK_THROWS_WITH(manager.save(1, {.optimizer = run.optimizer}), ContainsSubstring("give the model too"));
  CHECK_FALSE(std::filesystem::exists(folder / "run"));
}

}  // namespace
}  // namespace ddp
