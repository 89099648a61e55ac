// A rank that trains, as far as ddprun can see, without LibTorch: it tells its phases as the library does, meets the
// others in collectives of its own, and comes to grief where it is told to.
//
//   watched_program FOLDER [--steps N] [--fault KIND --rank R --at STEP] [--step_time SECONDS] [--work sleep|compute]
//                   [--slow PHASE --slow_by SHARE --rank R [--slow_seconds S]] [--pin 1] [--only PHASE] [--seconds S]
//                   [--own NAME]
//
// With --slow rank R takes so much of a step's time longer in this phase; with --pin rank R has CPU number R only; with
// --only there is work in this phase alone; --seconds is for how long rank 0 trains; with --alone it evaluates so many
// seconds before; with --own each step has a phase of this name.
// Ranks meet through a file in FOLDER that they share.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>

#include <ddprun/base/progress.h>

#include "base/progress/own_page.h"

namespace {

using Phase = ddp::progress::Phase;
using PhaseScope = ddp::progress::PhaseScope;
using namespace std::chrono_literals;

constexpr std::size_t kMaxRankCount = 64;

// How many collectives each rank has entered.
struct Meeting {
  std::array<std::atomic<std::uint64_t>, kMaxRankCount> entered;
  std::atomic<std::uint64_t> last_step;  // that all train, as rank 0 says; 0: not known
};

Meeting& meeting_in(const std::string& folder) {
  const int fd = ::open((folder + "/meeting").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(Meeting)) != 0) std::abort();
  void* memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) std::abort();
  return *static_cast<Meeting*>(memory);
}

int variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : 0;
}

struct Settings {
  std::string folder;
  int steps = 1 << 30;
  std::string fault;
  int rank = -1;
  int at = 0;
  double step_time = 0.002;
  bool computes = false;
  std::string slow;
  double slow_by = 0;
  double slow_seconds = 1e9;
  bool pins = false;
  std::string only;
  std::string own;
  double seconds = 1e9;
  double alone = 0;
};

Settings settings_of(int argc, char** argv) {
  Settings settings;
  settings.folder = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--steps") settings.steps = std::stoi(value);
    if (name == "--fault") settings.fault = value;
    if (name == "--rank") settings.rank = std::stoi(value);
    if (name == "--at") settings.at = std::stoi(value);
    if (name == "--step_time") settings.step_time = std::stod(value);
    if (name == "--work") settings.computes = value == "compute";
    if (name == "--slow") settings.slow = value;
    if (name == "--slow_by") settings.slow_by = std::stod(value);
    if (name == "--slow_seconds") settings.slow_seconds = std::stod(value);
    if (name == "--pin") settings.pins = value == "1";
    if (name == "--only") settings.only = value;
    if (name == "--own") settings.own = value;
    if (name == "--alone") settings.alone = std::stod(value);
    if (name == "--seconds") settings.seconds = std::stod(value);
  }
  return settings;
}

class Rank {
 public:
  explicit Rank(const Settings& settings)
      : settings_(settings),
        meeting_(meeting_in(settings.folder)),
        rank_(variable("RANK")),
        size_(variable("WORLD_SIZE")),
        group_(ddp::detail::own_page().add_group("", rank_, size_, 0)) {}

  void train() {
    if (settings_.pins) pin();
    if (rank_ == 0) work_alone();
    for (step_ = 0; step_ < settings_.steps && goes_on(); ++step_) {
      in(Phase::kData, "data");
      in(Phase::kForward, "forward");
      if (!settings_.own.empty()) {
        const PhaseScope own(settings_.own);
        work(settings_.step_time / 3);
      }
      ddp::detail::own_page().enter_phase(Phase::kBackward);
      if (!has("too_few")) collective(has("other_collective") ? "all_gather of Float [2]" : signature());
      ddp::detail::own_page().enter_phase(Phase::kOther);
      in(Phase::kOptimizer, "optimizer");
      if (step_ % 5 == 4) {
        in(Phase::kCheckpoint, "checkpoint");
        collective("barrier");
      }
      ddp::progress::step();
      ddp::progress::value("loss", 1.0 / (1 + step_));
    }
    const PhaseScope phase(Phase::kClosing);
    collective("barrier");
  }

 private:
  // Rank 0 says so a step before, and the others see it behind the collective of that step.
  bool goes_on() {
    const auto step = static_cast<std::uint64_t>(step_);
    if (rank_ == 0 && meeting_.last_step == 0 && since_start() > settings_.seconds) meeting_.last_step = step + 1;
    return meeting_.last_step == 0 || step <= meeting_.last_step;
  }
  bool has(const std::string& fault) const {
    return settings_.fault == fault && settings_.rank == rank_ && settings_.at == step_;
  }
  std::string signature() const {
    return has("other_size") ? "all_reduce (sum) of Float [7]" : "all_reduce (sum) of Float [2500, 2500]";
  }

  void in(Phase phase, const std::string& name) {
    const PhaseScope scope(phase);
    if (has("sleep_" + name)) std::this_thread::sleep_for(1h);
    if (has("die_" + name)) {
      std::this_thread::sleep_for(300ms);  // so that the others have come further
      std::_Exit(3);
    }
    if (has("loop_" + name)) loop();
    if (has("stop_" + name)) ::raise(SIGSTOP);
    if (has("mutex_" + name)) deadlock();
    if (has("pipe_" + name)) fill_pipe();
    const bool is_slow = settings_.slow == name && settings_.rank == rank_ && since_start() < settings_.slow_seconds;
    const double share = settings_.only.empty() ? 1.0 / 3 : settings_.only == name ? 1 : 0;
    work((share + (is_slow ? settings_.slow_by : 0)) * settings_.step_time);
  }

  double since_start() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  // From phase to phase, while the others wait in their first collective.
  void work_alone() const {
    while (since_start() < settings_.alone) {
      const PhaseScope scope(Phase::kEvaluation);
      std::this_thread::sleep_for(10ms);
    }
  }

  // So much processor time, or so much sleep.
  void work(double seconds) const {
    if (!settings_.computes) return std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    const double end = processor_seconds() + seconds;
    while (processor_seconds() < end) {
    }
  }
  static double processor_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  }
  void pin() const {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(rank_), &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) std::abort();
  }

  void collective(const std::string& signature) {
    const std::uint64_t number = number_++;
    const std::uint64_t begin = ddp::detail::page_clock();
    const std::uint64_t index = ddp::detail::own_page().begin_collective(group_, number, signature, begin);
    meeting_.entered[static_cast<std::size_t>(rank_)] = number + 1;
    // Ranks that call different things never leave, as with backends that do not compare.
    const bool is_other = has("other_collective") || has("other_size");
    for (int other = 0; other < size_; ++other) {
      const auto& entered = meeting_.entered[static_cast<std::size_t>(other)];
      while (entered.load() <= number || is_other) std::this_thread::sleep_for(200us);
    }
    if (is_bad(number)) std::this_thread::sleep_for(1h);
    const std::uint64_t end = ddp::detail::page_clock();
    ddp::detail::own_page().finish_collective(index, end);
    ddp::detail::own_page().add_wait(end - begin);
  }
  // The others in the collective that one of them has called differently.
  bool is_bad(std::uint64_t number) const {
    const bool different = settings_.fault == "other_collective" || settings_.fault == "other_size";
    const auto begun = static_cast<std::uint64_t>(settings_.at + settings_.at / 5);
    return different && number == begun && step_ == settings_.at;
  }

  [[gnu::noinline]] static void loop() {
    volatile std::uint64_t count = 0;
    while (true) count = count + 1;
  }
  static void deadlock() {
    std::mutex first;
    first.lock();
    std::thread([&] { first.lock(); }).join();
  }
  static void fill_pipe() {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::abort();
    const std::string text(1 << 16, 'x');
    while (::write(ends[1], text.data(), text.size()) > 0) {
    }
  }

  const Settings settings_;
  Meeting& meeting_;
  const int rank_;
  const int size_;
  const ddp::detail::PageGroup group_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int step_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  Rank(settings_of(argc, argv)).train();
  return 0;
}
