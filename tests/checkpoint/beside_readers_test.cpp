// One process saves, two others load all the time, and now and then one of the three is killed: every save succeeds,
// every load gives a whole checkpoint, never an older one than before, and nothing torn stays. SAVES says how many.
// The processes are forked from this one, which does nothing with LibTorch itself.
#include <ATen/ops/full.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <random>
#include <string>

#include <ddprun/checkpoint/checkpoint_manager.h>

#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

constexpr int kReaders = 2;

struct CountingNet : torch::nn::Module {
  CountingNet() : weight(register_parameter("weight", at::full({200}, -1.0))) {}
  void set(int64_t step) {
    const at::NoGradGuard no_grad;
    weight.fill_(static_cast<double>(step));
  }
  at::Tensor weight;
};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// Says each saved step through `report`.
void save_until(const std::filesystem::path& directory, int64_t last, bool async, int report) {
  const auto group = init_process_group({.rank_info = RankInfo{}});
  CountingNet net;
  CheckpointManager manager(directory, group, {.keep_last = 2, .async = async});
  const auto start = manager.load_latest({.model = net});
  for (auto step = start ? start->step : 0; step < last; ++step) {
    net.set(step + 1);
    manager.save(step + 1, {.model = net});
    const auto saved = step + 1;
    require(::write(report, &saved, sizeof(saved)) == sizeof(saved), "nobody listens");
  }
  manager.wait();
}

void load_until(const std::filesystem::path& directory, int64_t last) {
  const auto group = init_process_group({.rank_info = RankInfo{}});
  int64_t newest = 0;
  while (newest < last) {
    CountingNet net;
    CheckpointManager manager(directory, group, {.notify = [](const std::string& notice) {
                                require(notice.find("damaged") == std::string::npos, notice);
                              }});
    const auto loaded = manager.load_latest({.model = net});
    if (!loaded) {
      require(newest == 0, "the checkpoints are gone");
      continue;
    }
    require(loaded->step >= newest, "step " + std::to_string(loaded->step) + " after " + std::to_string(newest));
    require(net.weight.eq(static_cast<double>(loaded->step)).all().item<bool>(), "these are not that step's weights");
    newest = loaded->step;
  }
}

pid_t start(const std::function<void()>& body) {
  const auto child = ::fork();
  if (child != 0) return child;
  try {
    body();
    ::_exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    ::_exit(1);
  }
}

// Whether the child was alive until now, or had done all its work.
bool end(pid_t child) {
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) || WEXITSTATUS(status) == 0;
}

bool succeeds(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("BesideReaders: every save and every load succeeds whoever is killed") {
  const char* saves_text = std::getenv("SAVES");
  const int64_t saves = saves_text != nullptr ? std::atoll(saves_text) : 150;
  const test::TemporaryFolder folder;
  const auto directory = folder / "run";
  std::array<int, 2> pipe{};
  REQUIRE(::pipe2(pipe.data(), O_CLOEXEC) == 0);
  std::mt19937 random(1);
  bool async = false;
  const auto start_writer = [&] {
    async = !async;
    return start([&] { save_until(directory, saves, async, pipe[1]); });
  };
  const auto start_reader = [&] { return start([&] { load_until(directory, saves); }); };

  auto writer = start_writer();
  std::array<pid_t, kReaders> readers{start_reader(), start_reader()};
  int kills = 0;
  int64_t saved = 0;
  while (saved < saves) {
    // The instant of the kill is random: the writer goes on while it is decided.
    for (auto wait = 1 + random() % 30; wait > 0 && saved < saves; --wait) {
      const auto got = ::read(pipe[0], &saved, sizeof(saved));
      REQUIRE(got == static_cast<ssize_t>(sizeof(saved)));
    }
    if (saved == saves) break;
    ++kills;
    const auto whom = random() % (1 + kReaders);
    if (whom < kReaders) {
      INFO("a reader failed by itself");
      REQUIRE(end(readers[whom]));
      readers[whom] = start_reader();
    } else {
      INFO("the writer failed by itself");
      REQUIRE(end(writer));
      writer = start_writer();
    }
  }
  CHECK(succeeds(writer));
  for (const auto reader : readers) CHECK(succeeds(reader));

  storage::FileSystem file_system;
  const auto left = storage::list_checkpoints(file_system, directory);
  REQUIRE(left.size() == 2);
  CHECK(left.front().step == saves);
  for (const auto& entry : left) {
    CHECK(!entry.failure);
    storage::verify_files(file_system, entry.folder, entry.manifest);
  }
  for (const auto& name : file_system.entries(directory)) {
    INFO(name);
    CHECK_FALSE(storage::leftover(name));
  }
  std::printf("%lld saves, %d kills\n", static_cast<long long>(saves), kills);
}

}  // namespace
}  // namespace ddp
