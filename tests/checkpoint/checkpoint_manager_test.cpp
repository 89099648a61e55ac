#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/comm/collectives.h>

#include "base/crc32c.h"
#include "checkpoint/storage/manifest.h"
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

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::SizeIs;
using test::copy_of;
using test::Counter;
using test::ElementsAre;
using test::equal;
using test::error_of;
using test::FaultyFileSystem;
using test::Net;
using test::run_ranks;
using test::Said;
using test::single_process;
using test::steps_of;
using test::TemporaryFolder;
using test::train;
using test::Training;
using test::UnorderedElementsAre;

// test::Counter in LibTorch's form.
struct ArchivedCounter {
  int64_t count = 0;
  void save(torch::serialize::OutputArchive& archive) const { archive.write("count", c10::IValue(count)); }
  void load(torch::serialize::InputArchive& archive) {
    c10::IValue value;
    archive.read("count", value);
    count = value.toInt();
  }
};

// Ranks are threads, which share the random generator: they drew different weights.
void equalize(Training& run, const GroupHandle& group) {
  for (const auto& [name, tensor] : module_state(*run.net)) broadcast(tensor, 0, group);
}

TEST_CASE("CheckpointManager: a directory without a name is refused") {
  run_ranks(1, [](const GroupHandle& group) {
    RANK_CHECK_THROWS_MATCHES(CheckpointManager("", group), std::invalid_argument,
                              ContainsSubstring("the directory has no name"));
  });
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
  CHECK_THAT(notices.all(), ElementsAre(ContainsSubstring("saved by 2 ranks, and this job has 3")));
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
  CHECK_THAT(notices.all(), ElementsAre(ContainsSubstring("skipped") && ContainsSubstring("step-00000004"),
                                        ContainsSubstring("skipped") && ContainsSubstring("step-00000003")));
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
             UnorderedElementsAre(
                 ContainsSubstring("on rank 2: ") && ContainsSubstring("shared-counter.state: the counter refuses"),
                 ContainsSubstring("on rank 1: ") && ContainsSubstring("does not fit the model")));
}

TEST_CASE("CheckpointManager: a file whose content does not fit the object is named") {
  const TemporaryFolder folder;
  Training run;
  train(run.net, run.optimizer, 0, 1);
  Counter counter{.count = 5};
  const TrainingState state{.model = run.net, .optimizer = run.optimizer, .shared = {{"counter", counter}}};
  CheckpointManager manager(folder / "run", single_process(), {.notify = [](const std::string&) {}});
  manager.save(1, state);
  const auto saved = folder / "run" / "step-00000001";
  // Writes a file of the checkpoint, and a manifest that fits.
  const auto replace = [&](const std::string& name, const std::string& content) {
    auto manifest = storage::parse_manifest(test::read_file(saved / storage::kManifestName));
    test::write_file(saved / name, content);
    manifest.files[name] = {.size = content.size(), .crc32c = crc32c(content.data(), content.size())};
    test::write_file(saved / storage::kManifestName, storage::format_manifest(manifest));
  };
  save_safetensors(folder / "stripped", load_safetensors(saved / "optim.safetensors"));
  const auto whole = test::read_file(saved / "optim.safetensors");
  replace("optim.safetensors", test::read_file(folder / "stripped"));
  CHECK_THROWS_WITH(manager.load(1, state),
                    ContainsSubstring((saved / "optim.safetensors").string() + ": its tensors are an optimizer's") &&
                        ContainsSubstring("the metadata ddprun.optimizer"));
  replace("optim.safetensors", whole);
  replace("shared-counter.state", "garbage");
  CHECK_THROWS_WITH(manager.load(1, state), ContainsSubstring((saved / "shared-counter.state").string() + ": "));
  replace("shared-counter.state", "6");
  manager.load(1, state);
  CHECK(counter.count == 6);
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
                     ContainsSubstring("on rank 1: it saves step 5, but rank 0 saves step 4")));
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
