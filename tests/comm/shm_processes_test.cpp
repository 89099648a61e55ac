// Ranks as processes that are killed or stopped at any moment: the others end, and say who it was. No LibTorch.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/shm/collectives.h"
#include "comm/shm/engine.h"
#include "tests/support/catch.h"

namespace ddp::shm {
namespace {

using namespace std::chrono_literals;

// What a rank writes when it has seen another one fail, or has done all.
struct Report {
  int rank;
  std::array<char, 300> error;
};

// Collectives of every kind and size, and messages, without end.
void work(Engine& engine, Place place) {
  std::vector<float> data(100'000, 1.F);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  const auto run = [&](const JointPtr& operation) {
    operation->set_timeout(2s);
    engine.start(operation);
    engine.wait(*operation);
    if (operation->error()) std::rethrow_exception(operation->error());
  };
  for (;;) {
    for (const size_t count : {size_t{1}, size_t{3000}, size_t{100'000}}) {
      run(all_reduce(bytes, count, {.op = Operator::kMax}, place));
      run(broadcast(bytes, count * sizeof(float), 0, place));
      const auto next = std::make_shared<Message>(Message::Direction::kSend, (place.rank + 1) % place.ranks, 1, bytes,
                                                  count * sizeof(float));
      std::vector<float> received(count);
      const auto previous =
          std::make_shared<Message>(Message::Direction::kReceive, (place.rank + place.ranks - 1) % place.ranks, 1,
                                    reinterpret_cast<std::byte*>(received.data()), count * sizeof(float));
      for (const auto& message : {next, previous}) {
        message->set_timeout(2s);
        engine.start(message);
      }
      for (const auto& message : {previous, next}) {
        engine.wait(*message);
        if (message->error()) std::rethrow_exception(message->error());
      }
    }
  }
}

using Body = std::function<void(Engine& engine, Place place)>;

[[noreturn]] void be_rank(const std::string& ticket, Place place, int reports, const Body& body) {
  Report report{.rank = place.rank, .error = {}};
  const auto engine = Engine::make(Segment::attach(ticket), place.rank, must_share_processors(place.ranks));
  try {
    body(*engine, place);
    engine->stop("closed", /*has_failed=*/false);
  } catch (const std::exception& error) {
    engine->stop("ended", /*has_failed=*/true);
    std::string(error.what()).copy(report.error.data(), report.error.size() - 1);
  }
  static_cast<void>(!write(reports, &report, sizeof report));
  _exit(0);
}

// Ranks of one job; the test forks before it has any thread.
class Job {
 public:
  explicit Job(int ranks, const Body& body = work) : segment_(Segment::create(ranks)) {
    REQUIRE(pipe2(reports_.data(), O_CLOEXEC) == 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t child = fork();
      if (child == 0) be_rank(segment_.ticket(), {.rank = rank, .ranks = ranks}, reports_[1], body);
      pids_.push_back(child);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      while (segment_.block(rank).presence.load() == Presence::kAttaching) usleep(200);
    }
    close(reports_[1]);
  }
  ~Job() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    close(reports_[0]);
  }

  void signal(int rank, int number) const { kill(pids_[static_cast<size_t>(rank)], number); }
  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }

  // What the ranks that are left report; a rank that hangs ends the test by its limit.
  std::vector<Report> reports(int count) const {
    std::vector<Report> all;
    Report report{};
    while (static_cast<int>(all.size()) < count && read(reports_[0], &report, sizeof report) == sizeof report) {
      all.push_back(report);
    }
    return all;
  }

 private:
  Segment segment_;
  std::array<int, 2> reports_{};
  std::vector<pid_t> pids_;
};

bool names(const std::string& error, int rank, pid_t pid) {
  return error.find("rank " + std::to_string(rank) + " (process " + std::to_string(pid) + ")") != std::string::npos;
}

// DDPRUN_TEST_KILLS: how often.
int kills() {
  const char* text = std::getenv("DDPRUN_TEST_KILLS");
  return text == nullptr ? 40 : std::atoi(text);
}

int lines_with(const std::string& text, const char* path) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) count += line.find(text) != std::string::npos ? 1 : 0;
  return count;
}

TEST_CASE("ShmProcesses: a rank that is killed at any moment is named by all others, at once") {
  std::mt19937 random(11);
  for (int i = 0; i < kills(); ++i) {
    const int ranks = 2 + i % 3;
    const Job job(ranks);
    usleep(std::uniform_int_distribution<useconds_t>(0, 20'000)(random));
    const int victim = std::uniform_int_distribution<int>(0, ranks - 1)(random);
    INFO("kill " << i << ": rank " << victim << " of " << ranks);
    const auto before = std::chrono::steady_clock::now();
    job.signal(victim, SIGKILL);
    const std::vector<Report> reports = job.reports(ranks - 1);
    CHECK(std::chrono::steady_clock::now() - before < 1500ms);  // the operations' limit is 2 s
    REQUIRE(static_cast<int>(reports.size()) == ranks - 1);
    for (const Report& report : reports) {
      INFO("rank " << report.rank << ": " << report.error.data());
      CHECK(names(report.error.data(), victim, job.pid(victim)));
    }
  }
  // Memory without a name goes with the last one that maps it or has it open.
  CHECK(lines_with("ddprun ranks", "/proc/self/maps") == 0);
  for (const auto& descriptor : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    CHECK(std::filesystem::read_symlink(descriptor, gone).string().find("ddprun ranks") == std::string::npos);
  }
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
    CHECK(file.path().string().find("ddprun") == std::string::npos);
  }
}

TEST_CASE("ShmProcesses: a rank that is stopped is named when the time is over") {
  const Job job(3);
  usleep(5000);
  job.signal(1, SIGSTOP);
  const std::vector<Report> reports = job.reports(2);
  REQUIRE(reports.size() == 2);
  for (const Report& report : reports) {
    INFO("rank " << report.rank << ": " << report.error.data());
    CHECK(names(report.error.data(), 1, job.pid(1)));
    CHECK(std::string(report.error.data()).find("timed out after 2000 ms") != std::string::npos);
  }
}

TEST_CASE("ShmProcesses: a rank that goes when it has done its part fails no gather for which another one is late") {
  constexpr int kTrials = 80;  // one in a hundred met the fault
  for (int trial = 0; trial < kTrials; ++trial) {
    const Job job(3, [trial](Engine& engine, Place place) {
      engine.run(barrier());
      // Rank 0 looks for the first time 10 ms after it has begun.
      if (place.rank == 1) std::this_thread::sleep_for(30ms);
      if (place.rank == 2) std::this_thread::sleep_for(10ms + std::chrono::microseconds(trial * 37 % 400));
      std::array<float, 3> all{};
      std::vector<std::byte*> outputs;
      for (float& number : all) outputs.push_back(reinterpret_cast<std::byte*>(&number));
      if (place.rank != 0) outputs.clear();
      auto own = static_cast<float>(place.rank);
      const auto operation = gather(outputs, reinterpret_cast<std::byte*>(&own), sizeof own, 0, place);
      engine.run(operation);
      if (operation->error()) std::rethrow_exception(operation->error());
    });
    for (const Report& report : job.reports(3)) {
      INFO("trial " << trial << ", rank " << report.rank << ": " << report.error.data());
      CHECK(report.error[0] == '\0');
    }
  }
}

TEST_CASE("ShmSegment: a ticket of another kind, or of memory that was forgotten, is refused with the reason") {
  Segment segment = Segment::create(2);
  const std::string ticket = segment.ticket();
  CHECK_NOTHROW(Segment::attach(ticket));
  CHECK_THROWS(Segment::attach(ticket.substr(0, ticket.size() - 1) + "x"));
  CHECK_THROWS(Segment::attach(std::to_string(getpid()) + " 0 x"));
  CHECK_THROWS(Segment::attach(""));
  segment.forget_ticket();
  CHECK_THROWS(Segment::attach(ticket));
}

}  // namespace
}  // namespace ddp::shm
