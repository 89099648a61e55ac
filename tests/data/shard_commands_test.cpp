// Archives that a command writes: its signals, its end, and loops that are left while it writes nothing.
#include <ATen/ATen.h>
#include <signal.h>
#include <sys/time.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/loader.h>
#include <ddprun/data/streams.h>
#include <ddprun/samplers/stream_sampler.h>

#include "tests/data/gzip.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::ElementsAre;

class ShardCommands {
 protected:
  /// The path of an archive of samples whose class is their number.
  std::string archive(int64_t samples) const {
    ShardWriter writer(folder_ / "s");
    for (int64_t i = 0; i < samples; ++i) writer.add("k" + std::to_string(i), {{"cls", std::to_string(i)}});
    writer.close();
    return writer.archives().at(0);
  }

  static Batch decode(const ShardSample& sample, SampleRandom& /*random*/) {
    const int64_t number = sample.number_in("cls");
    if (number == 77) throw std::runtime_error("the class is 77");
    return {.data = at::zeros({1}), .target = at::scalar_tensor(number, at::kLong)};
  }

  template <typename Loaded>
  static std::vector<int64_t> targets(Loaded& loader) {
    std::vector<int64_t> all;
    for (auto& batch : loader) {
      const auto* values = batch.target.template const_data_ptr<int64_t>();
      all.insert(all.end(), values, values + batch.target.numel());
    }
    return all;
  }

  static WebDataset from_command(const std::string& command) {
    return WebDataset(std::vector<std::string>{"pipe:" + command}, decode);
  }

  const test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(ShardCommands,
                 "WebDataset: a command has the usual signals, whatever this process ignores or blocks") {
  const auto message_of = [](const std::string& command) {
    const WebDataset dataset(std::vector<std::string>{"pipe:" + command}, decode);
    try {
      dataset.open(0).next();
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  sigset_t term{}, before{};
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &term, &before);
  const auto pipe_before = std::signal(SIGPIPE, SIG_IGN);  // as a job of several ranks has it
  // With the end of the pipeline all of it ends, though the first part writes on and on.
  const std::string end = message_of("while :; do echo; done | head -c 100");
  const std::string of_pipe = message_of("kill -PIPE $$"), of_term = message_of("kill -TERM $$");
  std::signal(SIGPIPE, pipe_before);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  CHECK_THAT(end, ContainsSubstring("expected a header of 512 bytes, got 100"));
  CHECK_THAT(of_pipe, ContainsSubstring("was ended by signal 13"));
  CHECK_THAT(of_term, ContainsSubstring("was ended by signal 15"));
}

TEST_CASE_METHOD(ShardCommands, "WebDataset: signals that interrupt the wait for a command change nothing") {
  const std::string plain = test::read_file(archive(3));
  // Two members of gzip data, and bytes after them that are ignored.
  const std::string packed = test::gzip(plain.substr(0, 700)) + test::gzip(plain.substr(700)) + "xyz";
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};  // without SA_RESTART
  ::sigaction(SIGALRM, &action, &before);
  constexpr itimerval kOften{{0, 5000}, {0, 5000}}, kNever{};
  for (const std::string& content : {plain, packed}) {
    test::write_file((folder_ / "x"), content);
    const std::string slowly = "pipe:(head -c 1; sleep 0.1; head -c 100; sleep 0.1; cat) < " + (folder_ / "x").string();
    const WebDataset dataset(std::vector<std::string>{slowly}, decode);
    StreamSampler sampler({.num_replicas = 1});
    Loader loader(dataset, sampler, {.batch_size = 2, .workers = 0});
    ::setitimer(ITIMER_REAL, &kOften, nullptr);
    std::vector<int64_t> seen;
    CHECK_NOTHROW(seen = targets(loader));
    ::setitimer(ITIMER_REAL, &kNever, nullptr);
    CHECK_THAT(seen, ElementsAre(0, 1, 2));
  }
  ::sigaction(SIGALRM, &before, nullptr);
}

/// Commands that write some samples and then nothing for a minute.
class SilentCommands : public ShardCommands {
 protected:
  using Clock = std::chrono::steady_clock;

  /// Checks that `action` does not wait for a command that sleeps.
  static void check_short(const std::function<void()>& action) {
    const auto start = Clock::now();
    action();
    CHECK(Clock::now() - start < std::chrono::seconds(30));
  }

  const std::string six_ = "head -c 6144 " + archive(10);  // a sample has 1024 bytes
  const std::vector<std::string> kinds_ = {
      "sleep 60",
      "exec sleep 60",
      "trap '' TERM INT HUP; while :; do sleep 60; done",
      "exec >&-; sleep 60",              // has closed its output, and runs on
      "setsid -w sleep 60 2>/dev/null",  // in another session; without the stderr that CTest waits for
      "sleep 60 | cat",
      "trap '' TERM; sleep 60 & wait",
  };
};

TEST_CASE_METHOD(SilentCommands, "WebDataset: a loop is left while a command writes nothing") {
  const int workers = GENERATE(0, 1, 2);
  INFO("workers: " << workers);
  for (const std::string& kind : kinds_) {
    INFO(kind);
    const WebDataset dataset = from_command(six_ + "; " + kind);
    check_short([&] {
      StreamSampler sampler({.num_replicas = 1});
      Loader loader(dataset, sampler, {.batch_size = 2, .workers = workers});
      for (auto& batch : loader) {
        if (batch.target[1].item<int64_t>() == 3) break;
      }
    });
    check_short([&] {
      StreamSampler sampler({.num_replicas = 1});
      Loader loader(dataset, sampler, {.batch_size = 2, .workers = workers});
      const auto leave = [&] {
        for (auto& batch : loader) {
          if (batch.target[1].item<int64_t>() == 3) throw std::domain_error("left");
        }
      };
      CHECK_THROWS_AS(leave(), std::domain_error);
      // Another pass begins while the threads of the first one wait.
      CHECK(loader.begin()->target[0].item<int64_t>() == 0);
    });
  }
}

TEST_CASE_METHOD(SilentCommands, "WebDataset: what a batch's samples throw comes while a command writes nothing") {
  ShardWriter writer(folder_ / "bad", {});
  for (const char* const value : {"0", "1", "77", "3"}) writer.add(std::string("v") + value, {{"cls", value}});
  writer.close();
  const WebDataset dataset = from_command("head -c 4096 " + writer.archives().at(0).string() + "; sleep 60");
  check_short([&] {
    StreamSampler sampler({.num_replicas = 1});
    Loader loader(dataset, sampler, {.batch_size = 1, .workers = 3});
    CHECK_THROWS_WITH(targets(loader), ContainsSubstring("the class is 77"));
  });
}

/// A stream of a user's own that waits for what never comes.
struct SilentStream {
  struct Walk {
    int64_t given = 0;
    std::optional<int64_t> next() {
      if (given < 4) return given++;
      while (!stop_of_pass().stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      throw std::runtime_error("left");
    }
  };
  int64_t parts() const { return 1; }
  Walk open(int64_t /*part*/) const { return {}; }
  std::vector<int64_t> make_batch(std::span<int64_t> samples) const { return {samples.begin(), samples.end()}; }
};

TEST_CASE_METHOD(SilentCommands, "Loader: a stream's own wait learns that the loop was left") {
  const SilentStream stream;
  CHECK_FALSE(stop_of_pass().stop_possible());
  for (const int workers : {0, 1, 3}) {
    StreamSampler sampler({.num_replicas = 1});
    Loader loader(stream, sampler, {.batch_size = 2, .workers = workers});
    for (int pass = 0; pass < 3; ++pass) {
      for (const auto& batch : loader) {
        if (batch[1] == 3) break;
      }
    }
  }
}

}  // namespace
}  // namespace ddp
