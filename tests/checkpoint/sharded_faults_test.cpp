// What goes wrong with checkpoints that all ranks write: a rank whose disk is full, a job that is killed, files that
// are missing or not what was written, ranks that have other tensors or another directory.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint.h>

#include "checkpoint/storage/inventory.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/forged_manifest.h"
#include "tests/checkpoint/sharded_runs.h"
#include "tests/checkpoint/steps_in.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::FaultyFileSystem;
using test::Kind;

constexpr int kRanks = 3;

CheckpointOptions options_with(std::shared_ptr<storage::FileSystem> file_system, bool async) {
  auto options = test::quiet(std::nullopt, async);
  options.file_system = std::move(file_system);
  return options;
}

// The steps that are there, each with every byte that was written.
std::vector<int64_t> whole_steps(const std::filesystem::path& directory) {
  storage::FileSystem file_system;
  std::vector<int64_t> steps;
  for (const auto& entry : storage::list_checkpoints(file_system, directory)) {
    INFO(entry.failure.text);
    CHECK(!entry.failure);
    storage::verify_files(file_system, entry.folder, entry.manifest);
    steps.push_back(entry.step);
  }
  return steps;
}

class FullDisk {
 protected:
  const bool async_ = GENERATE(false, true);
  const int rank_ = GENERATE(0, 1, 2);
  FIXTURE_INFO("async: " << async_ << ", full on rank: " << rank_);
};

TEST_CASE_METHOD(FullDisk, "FullDisk: the save fails on all ranks with the rank's name, and training continues") {
  bool is_saved = false;
  int at = 0;
  for (; !is_saved && at < 400; at += rank_ == 0 || !async_ ? 4 : 1) {
    INFO("operation " << at);
    const test::TemporaryFolder folder;
    test::run_ranks(kRanks, [&](const GroupHandle& group) {
      test::ShardedRun run(Kind::kFullyShard, group);
      run.train(0);
      {
        CheckpointManager earlier(folder / "run", group, test::quiet(std::nullopt));
        earlier.save(1, run.state());
      }
      const auto fault = group.rank() == rank_ ? FaultyFileSystem::fail_at(at, ENOSPC) : FaultyFileSystem::Fault();
      auto file_system = std::make_shared<FaultyFileSystem>(fault ? fault : [](int, const std::string&) {});
      CheckpointManager manager(folder / "run", group, options_with(file_system, async_));
      const auto error = test::error_of([&] {
        manager.save(2, run.state());
        manager.wait();
      });
      const auto same = all_gather_strings(error, group);
      RANK_CHECK(std::ranges::all_of(same, [&](const auto& each) { return each == error; }));
      if (error == "no error") {
        if (group.rank() == 0) is_saved = true;
        return;
      }
      RANK_CHECK_THAT(error, ContainsSubstring("No space left on device"));
      RANK_CHECK_THAT(error, ContainsSubstring("on rank " + std::to_string(rank_) + ": "));
      run.train(1);
      manager.save(3, run.state());
      manager.wait();
    });
    const auto steps = whole_steps(folder / "run");
    CHECK(std::ranges::count(steps, 1) == 1);
    if (!is_saved) CHECK(std::ranges::count(steps, 3) == 1);
  }
  CHECK(is_saved);
  CHECK(at > 5);
}

// The same training each time: saves of steps 1, 2, 3 …
void train_and_save(const std::filesystem::path& directory, bool async, int killed_rank, int at) {
  test::run_ranks(kRanks, [&](const GroupHandle& group) {
    test::ShardedRun run(Kind::kFullyShard, group);
    const auto fault = group.rank() == killed_rank ? FaultyFileSystem::kill_at(at) : [](int, const std::string&) {};
    CheckpointManager manager(directory, group, options_with(std::make_shared<FaultyFileSystem>(fault), async));
    for (int64_t step = 1; step <= 2; ++step) {
      run.train(step);
      manager.save(step, run.state());
    }
    manager.wait();
  });
}

TEST_CASE("ShardedKill: at each write the newest complete checkpoint stays, and nothing torn is taken") {
  const bool async = GENERATE(false, true);
  const int killed_rank = GENERATE(0, 2);
  CAPTURE(async, killed_rank);
  bool finished = false;
  int at = 0;
  for (; !finished && at < 400; at += killed_rank == 0 ? 4 : 1) {
    const test::TemporaryFolder folder;
    const auto child = ::fork();
    if (child == 0) {
      try {
        train_and_save(folder / "run", async, killed_rank, at);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    finished = WIFEXITED(status);
    INFO("operation " << at);
    if (finished) REQUIRE(WEXITSTATUS(status) == 0);
    const auto steps = whole_steps(folder / "run");
    if (finished) CHECK(steps == std::vector<int64_t>{2, 1});
    if (steps.empty()) continue;
    // Another number of ranks goes on from what is left, and saves there.
    test::run_ranks(2, [&](const GroupHandle& group) {
      test::ShardedRun run(Kind::kFullyShard, group);
      CheckpointManager manager(folder / "run", group, test::quiet(std::nullopt));
      const auto start = manager.load_latest(run.state());
      RANK_REQUIRE(start.has_value());
      RANK_CHECK(start->step == steps.front());
      manager.save(9, run.state());
    });
    CHECK(whole_steps(folder / "run").front() == 9);
  }
  CHECK(finished);
  CHECK(at > 10);
}

// A checkpoint of three ranks, and an older one.
class SavedByThree {
 protected:
  SavedByThree() {
    test::run_ranks(kRanks, [&](const GroupHandle& group) {
      test::ShardedRun run(Kind::kFullyShard, group);
      CheckpointManager manager(directory(), group, test::quiet(std::nullopt));
      for (int64_t step = 1; step <= 2; ++step) {
        run.train(step);
        manager.save(step, run.state());
      }
    });
  }

  std::filesystem::path directory() const { return folder_ / "run"; }
  std::filesystem::path file(const std::string& name) const { return directory() / "step-00000002" / name; }

  // What two ranks say when they load the damaged step; they take the older one when it may be any.
  std::string load_error() {
    std::string said;
    test::run_ranks(2, [&](const GroupHandle& group) {
      test::ShardedRun run(Kind::kFullyShard, group);
      const auto before = run.whole();
      CheckpointManager manager(directory(), group, test::quiet(std::nullopt));
      const auto error = test::error_of([&] { manager.load(2, run.state()); });
      RANK_CHECK(run.whole() == before);
      const auto start = manager.load_latest(run.state());
      RANK_REQUIRE(start.has_value());
      RANK_CHECK(start->step == 1);
      if (group.rank() == 0) said = error;
    });
    return said;
  }

  // What load_latest() says of the damaged one.
  std::string said_of_latest() const {
    std::string said;
    test::run_ranks(1, [&](const GroupHandle& group) {
      test::ShardedRun run(Kind::kFullyShard, group);
      CheckpointManager manager(directory(), group, {.notify = [&](const std::string& text) { said += text; }});
      manager.load_latest(run.state());
    });
    return said;
  }

  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(SavedByThree, "SavedByThree: a missing file is named with its rank and a tensor") {
  std::filesystem::remove(file("model-00002-of-00003.safetensors"));
  const auto error = load_error();
  CHECK_THAT(said_of_latest(), ContainsSubstring("rank 1's part"));
  CHECK_THAT(error, ContainsSubstring("model-00002-of-00003.safetensors") && ContainsSubstring("rank 1's part"));
  CHECK_THAT(error, ContainsSubstring("'embedding.weight'") || ContainsSubstring("'first."));
}

TEST_CASE_METHOD(SavedByThree, "SavedByThree: what is in the place of a file is named with its rank and a tensor") {
  const auto path = file("model-00002-of-00003.safetensors");
  const auto make = GENERATE(0, 1, 2);
  std::filesystem::remove(path);
  if (make == 0) REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  if (make == 1) std::filesystem::create_directory(path);
  if (make == 2) std::filesystem::create_symlink(path.filename(), path);
  const auto expected = ContainsSubstring("(rank 1's part) is not a regular file; it held a part of '");
  CHECK_THAT(load_error(), expected);
  CHECK_THAT(said_of_latest(), expected);
}

TEST_CASE_METHOD(SavedByThree, "SavedByThree: a manifest that is not a file that can be read is named") {
  const auto path = file("MANIFEST.json");
  std::filesystem::remove(path);
  std::filesystem::create_symlink("MANIFEST.json", path);
  CHECK_THAT(load_error(), ContainsSubstring("MANIFEST.json") && ContainsSubstring("replace the symbolic link"));
  CHECK_THAT(said_of_latest(), ContainsSubstring("MANIFEST.json"));
}

TEST_CASE_METHOD(SavedByThree, "SavedByThree: a manifest that lists a file of no rank is refused") {
  const auto path = file("MANIFEST.json");
  auto text = test::read_file(path);
  const auto begin = text.find("    \"model-00003-of-00003.safetensors\"");
  const auto line = text.substr(begin, text.find('\n', begin) + 1 - begin);
  auto added = line;
  added.replace(added.find("00003"), 5, "00004");
  test::write_file(path, test::with_checksum(text.insert(begin + line.size(), added)));
  std::filesystem::copy(file("model-00003-of-00003.safetensors"), file("model-00004-of-00003.safetensors"));
  CHECK_THAT(load_error(),
             ContainsSubstring("lists model-00004-of-00003.safetensors, which is not the file of any rank"));
}

TEST_CASE_METHOD(SavedByThree, "SavedByThree: a short file is named with its rank and a tensor") {
  const auto path = file("optim-00003-of-00003.safetensors");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 8);
  CHECK_THAT(load_error(), ContainsSubstring("optim-00003-of-00003.safetensors") &&
                               ContainsSubstring("rank 2's part") && ContainsSubstring("'state."));
}

TEST_CASE_METHOD(SavedByThree, "SavedByThree: a changed byte is found by the ranks that need it") {
  const auto path = file("model-00001-of-00003.safetensors");
  auto bytes = test::read_file(path);
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 1);
  test::write_file(path, bytes);
  CHECK_THAT(load_error(), ContainsSubstring("model-00001-of-00003.safetensors (rank 0's part)") ||
                               ContainsSubstring("(rank 0's part); they hold '"));
  CHECK_THAT(load_error(), ContainsSubstring("CRC32C") && ContainsSubstring("they hold '"));
}

TEST_CASE_METHOD(SavedByThree, "SavedByThree: a file cut within its header is named with a tensor or its kind") {
  std::filesystem::resize_file(file("optim-00002-of-00003.safetensors"), 30);
  CHECK_THAT(load_error(), ContainsSubstring("rank 1's part") && ContainsSubstring("it held a part of 'state."));
}

TEST_CASE_METHOD(SavedByThree, "SavedByThree: a manifest's world size must be that of the files") {
  const auto path = file("MANIFEST.json");
  const auto text = test::read_file(path);
  const std::string written = "\"world_size\": 3";
  for (const std::string size : {"0", "-1", "1", "2", "4", "1000000000", "9223372036854775808"}) {
    auto forged = text;
    forged.replace(forged.find(written), written.size(), "\"world_size\": " + size);
    test::write_file(path, test::with_checksum(forged));
    INFO(size);
    CHECK_THAT(load_error(), ContainsSubstring("MANIFEST.json"));
    const bool is_number = size.size() == 1 && size != "0";
    if (is_number)
      CHECK_THAT(load_error(), ContainsSubstring("has world_size " + size) && ContainsSubstring("of 3 ranks"));
  }
}

TEST_CASE_METHOD(SavedByThree, "SavedByThree: without its manifest it was never committed") {
  std::filesystem::remove(file("MANIFEST.json"));
  CHECK_THAT(load_error(), ContainsSubstring("no MANIFEST.json"));
  const auto other = folder_ / "x.tmp-12ab";
  std::filesystem::copy(directory() / "step-00000002", other);
  test::run_ranks(2, [&](const GroupHandle& group) {
    test::ShardedRun run(Kind::kFullyShard, group);
    const auto before = run.whole();
    CheckpointManager manager(directory(), group, test::quiet(std::nullopt));
    auto state = run.state();
    const auto error = test::error_of([&] { manager.load(other, {.model = state.model}); });
    RANK_CHECK_THAT(error, ContainsSubstring("it has block-checksums.txt, but no MANIFEST.json"));
    RANK_CHECK(run.whole() == before);
  });
  test::ShardedNet net;
  CHECK_THAT(test::error_of([&] { load_weights(other, net); }), ContainsSubstring("no MANIFEST.json"));
}

TEST_CASE_METHOD(SavedByThree, "SavedByThree: without the checksums of its blocks nothing is taken") {
  std::filesystem::remove(file("block-checksums.txt"));
  CHECK_THAT(load_error(), ContainsSubstring("block-checksums.txt"));
}

TEST_CASE_METHOD(SavedByThree, "SavedByThree: its model alone, as shards without a manifest") {
  const auto bare = folder_ / "bare";
  std::filesystem::create_directory(bare);
  for (int rank = 1; rank <= kRanks; ++rank) {
    const auto name = "model-0000" + std::to_string(rank) + "-of-00003.safetensors";
    std::filesystem::copy_file(file(name), bare / name);
  }
  test::run_ranks(2, [&](const GroupHandle& group) {
    test::ShardedRun expected(Kind::kFullyShard, group);
    CheckpointManager manager(directory(), group, test::quiet(std::nullopt));
    manager.load(2, expected.state());
    test::ShardedRun run(Kind::kFullyShard, group);
    auto state = run.state();
    const auto start = manager.load(bare, {.model = state.model});
    RANK_CHECK(start.step == 0);
    const auto whole = run.whole();
    const auto wanted = expected.whole();
    for (const auto& item : run.model().named_parameters()) RANK_CHECK((whole.at(item.key()) == wanted.at(item.key())));
  });
}

TEST_CASE_METHOD(SavedByThree,
                 "SavedByThree: weights of a directory of checkpoints are refused with a folder to give") {
  test::ShardedNet net;
  CHECK_THAT(test::error_of([&] { load_weights(directory(), net); }),
             ContainsSubstring("directory of checkpoints") && ContainsSubstring("run/step-00000002"));
}

TEST_CASE("ShardedSave: ranks that do not share the directory are refused") {
  const bool async = GENERATE(false, true);
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](const GroupHandle& group) {
    test::ShardedRun run(Kind::kZero, group);
    run.train(0);
    const auto directory = folder / ("of-rank-" + std::to_string(group.rank()));
    CheckpointManager manager(directory, group, test::quiet(std::nullopt, async));
    const auto error = test::error_of([&] {
      manager.save(1, run.state());
      manager.wait();
    });
    RANK_CHECK_THAT(error, ContainsSubstring("rank 1") && ContainsSubstring("share"));
    RANK_CHECK(manager.list().empty());
  });
}

TEST_CASE("ShardedSave: ranks that have other tensors are named") {
  const test::TemporaryFolder folder;
  test::run_ranks(3, [&](const GroupHandle& group) {
    torch::nn::Linear net(3, group.rank() == 2 ? 5 : 4);
    CheckpointManager manager(folder / "run", group, test::quiet(true));
    RANK_CHECK_THAT(test::error_of([&] { manager.save(1, {.model = net}); }),
                    ContainsSubstring("rank 2 'bias' (float32 [5])") && ContainsSubstring("rank 0 has 'bias'"));
  });
}

TEST_CASE("ShardedSave: of ranks that have other tensors the first that differs is named") {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](const GroupHandle& group) {
    test::ShardedNet net;
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    if (group.rank() == 1) {
      net(test::sharded_input(0, 0)).sum().backward();
      optimizer.step();
    }
    CheckpointManager manager(folder / "run", group, test::quiet(true));
    const auto error = test::error_of([&] { manager.save(1, {.model = net, .optimizer = optimizer}); });
    RANK_CHECK_THAT(error, ContainsSubstring("rank 1 has 'state.") && ContainsSubstring("which rank 0 does not have"));
    RANK_CHECK_THAT(error, !ContainsSubstring("num_batches"));
  });
}

TEST_CASE("ShardedSave: ranks that have other values of what they write together are named") {
  const test::TemporaryFolder folder;
  const bool has_other = GENERATE(false, true);
  const bool is_hybrid = GENERATE(false, true);
  test::run_ranks(4, [&](const GroupHandle& group) {
    test::ShardedRun run(is_hybrid ? Kind::kHybrid : Kind::kReplicated, group);
    run.train(0);
    const at::NoGradGuard no_grad;
    if (has_other && group.rank() == 3) run.model().parameters().front().add_(1);
    std::vector<std::string> notes;
    auto options = test::quiet(true);
    options.notify = [&](const std::string& text) { notes.push_back(text); };
    CheckpointManager manager(folder / "run", group, options);
    manager.save(1, run.state());
    RANK_CHECK(notes.size() == (has_other && group.rank() == 0 ? 1U : 0U));
    if (!notes.empty()) RANK_CHECK_THAT(notes.front(), ContainsSubstring("rank 3 has different values of"));
  });
}

TEST_CASE("ShardedSave: a part of the ranks cannot save what all share") {
  const test::TemporaryFolder folder;
  test::run_ranks(4, [&](const GroupHandle& group) {
    test::ShardedRun run(Kind::kFullyShard, group);
    const auto half = new_subgroups(group, 2);
    CheckpointManager manager(folder / std::to_string(group.rank() / 2), half, test::quiet(std::nullopt));
    RANK_CHECK_THAT(test::error_of([&] { manager.save(1, run.state()); }), ContainsSubstring("not the whole tensors"));
  });
}

TEST_CASE("ShardedSave: rank 0 alone cannot save a sharded model") {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](const GroupHandle& group) {
    test::ShardedRun run(Kind::kFullyShard, group);
    CheckpointManager manager(folder / "run", group, test::quiet(false));
    RANK_CHECK_THAT(test::error_of([&] { manager.check(run.state()); }),
                    ContainsSubstring("CheckpointOptions::sharded"));
    RANK_CHECK_THAT(test::error_of([&] { manager.save(1, run.state()); }),
                    ContainsSubstring("CheckpointOptions::sharded"));
  });
}

}  // namespace
}  // namespace ddp
