// Training with a save at every step is killed with SIGKILL at random instants and resumed, again and again: there is
// always a valid newest checkpoint, nothing is lost that was saved, and the final weights are those of a run that
// nobody disturbed. KILLS says how often. The runs are forked from this process, which does nothing with LibTorch
// itself.
#include <sys/wait.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <string>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/comm/manual_seed.h>

#include "checkpoint/storage/inventory.h"
#include "tests/checkpoint/nets.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kSteps = 120;

// Two ranks; the weights depend on a random stream.
void train_to_the_end(const std::filesystem::path& folder, bool async) {
  test::run_ranks(kRanks, [&](const GroupHandle& group) {
    // Ranks are threads, which share the random generator: it is rank 0's alone, whose weights are saved.
    if (group.rank() == 0) barrier(group);
    if (group.rank() == 0) manual_seed(1, group);
    test::Net net;
    if (group.rank() != 0) barrier(group);
    torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
    CheckpointManager manager(folder / "run", group,
                              {.keep_last = 3, .async = async, .notify = [](const std::string&) {}});
    const TrainingState state{.model = net, .optimizer = optimizer, .rng = group.rank() == 0};
    const auto start = manager.load_latest(state);
    for (auto step = start ? start->step : 0; step < kSteps; ++step) {
      if (group.rank() == 0) {
        const auto x = torch::rand({6, 4});
        optimizer.zero_grad();
        torch::nn::functional::mse_loss(net(x), x.narrow(1, 0, 3).cos()).backward();
        optimizer.step();
      }
      manager.save(step + 1, state);
    }
    manager.wait();
    if (group.rank() == 0) save_safetensors(folder / "final", module_state(*net));
  });
}

pid_t start_training(const std::filesystem::path& folder, bool async) {
  const auto child = ::fork();
  if (child != 0) return child;
  try {
    train_to_the_end(folder, async);
    ::_exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "training failed: %s\n", error.what());
    ::_exit(1);
  }
}

// True when the child ended by itself within the time, else it is killed.
bool ends_within(pid_t child, int microseconds) {
  ::usleep(static_cast<useconds_t>(microseconds));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) {
    RANK_CHECK(WEXITSTATUS(status) == 0);
    return true;
  }
  return false;
}

// The newest step whose every byte is right; 0 for none. What is listed as undamaged must be.
int64_t newest_valid(const std::filesystem::path& directory) {
  storage::FileSystem file_system;
  int64_t newest = 0;
  for (const auto& entry : storage::list_checkpoints(file_system, directory)) {
    RANK_INFO("a kill must leave no damaged checkpoint under its final name");
    RANK_CHECK(!entry.failure);
    storage::verify_files(file_system, entry.folder, entry.manifest);
    newest = std::max(newest, entry.step);
  }
  return newest;
}

TEST_CASE("Kill: no instant loses a saved step") {
  const bool async = GENERATE(false, true);
  CAPTURE(async);
  const test::TemporaryFolder undisturbed;
  int status = -1;
  ::waitpid(start_training(undisturbed / ".", async), &status, 0);
  REQUIRE(status == 0);
  const auto expected = test::read_file(undisturbed / "final");
  REQUIRE_FALSE(expected.empty());

  const char* kills_text = std::getenv("KILLS");
  const int kills = (kills_text != nullptr ? std::atoi(kills_text) : 30) / 2;  // the other half in the other mode
  std::mt19937 random(async ? 1 : 2);
  int in_training = 0, runs = 0;
  while (in_training < kills) {
    const test::TemporaryFolder folder;
    int64_t newest = 0;
    bool finished = false;
    ++runs;
    while (!finished) {
      // Once enough are done, the last run goes on to its end.
      const int limit = in_training < kills ? static_cast<int>(random() % 250'000) : 600'000'000;
      const auto child = start_training(folder / ".", async);
      if (in_training < kills) {
        finished = ends_within(child, limit);
      } else {
        ::waitpid(child, &status, 0);
        REQUIRE(status == 0);
        finished = true;
      }
      const auto found = newest_valid(folder / "run");
      INFO("a saved step was lost");
      CHECK(found >= newest);
      if (!finished && found > newest) ++in_training;  // it was killed between its first save and its end
      newest = found;
    }
    CHECK(newest == kSteps);
    INFO("other weights than those of the undisturbed run");
    CHECK(test::read_file(folder / "final") == expected);
  }
  std::printf("%d kills in training, %d runs brought to the same weights\n", in_training, runs);
}

}  // namespace
}  // namespace ddp
