// A rank that records a timeline, without LibTorch: it meets the others in collectives through a file of FOLDER.
//
//   timed_program FOLDER KIND [NUMBER]
//
// KIND: steps (NUMBER of them, 2 ms each), ranges (as many as there is time for in NUMBER ms), threads (NUMBER of
// them at once), names (hostile ones), idle (nothing, and no step), for_ever (steps without end), waits (in one range,
// from when there is a file FOLDER/go), own (NUMBER steps, in a ddp::Timeline of its own in the file that comes next).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/base/progress.h>
#include <ddprun/base/timeline.h>

#include "base/timeline/own_timeline.h"

namespace {

using Phase = ddp::progress::Phase;
using PhaseScope = ddp::progress::PhaseScope;
using ddp::timeline::Range;
using namespace std::chrono_literals;

constexpr std::size_t kMaxRankCount = 64;
using Meeting = std::array<std::atomic<std::uint64_t>, kMaxRankCount>;

Meeting& meeting_in(const std::string& folder) {
  const int fd = ::open((folder + "/meeting").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(Meeting)) != 0) std::abort();
  void* memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) std::abort();
  return *static_cast<Meeting*>(memory);
}

std::size_t variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? static_cast<std::size_t>(std::atoi(text)) : 1;
}

void collective(Meeting& rendezvous_address, std::uint64_t number) {
  using namespace ddp::detail;
  const auto event = begin_event(EventKind::kCollective, "all_reduce", number);
  const EventScope wait(EventKind::kWait, "wait for all_reduce");
  const std::size_t rank = variable("RANK");
  rendezvous_address[rank] = number + 1;
  for (std::size_t other = 0; other < variable("WORLD_SIZE"); ++other) {
    while (rendezvous_address[other] <= number) std::this_thread::sleep_for(100us);
  }
  end_event(event);
}

void train(const std::string& folder, int steps) {
  Meeting& rendezvous_address = meeting_in(folder);
  for (int step = 0; step < steps; ++step) {
    {
      const PhaseScope forward(Phase::kForward);
      const Range range("attention");
      std::this_thread::sleep_for(2ms);
    }
    collective(rendezvous_address, static_cast<std::uint64_t>(step));
    ddp::progress::value("loss", 1.0 / (1 + step));
    ddp::progress::step();
    if (step == 3) std::cout << "trains" << std::endl;
  }
}

void record_ranges(int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  std::uint64_t count = 0;
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 100; ++i, ++count) const Range range("short");
  }
  std::cout << "ranges " << count << std::endl;
}

void record_threads(int count) {
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      { const Range range("work"); }
      ++done;
      while (done < count) std::this_thread::sleep_for(1ms);
    });
  }
  for (auto& thread : threads) thread.join();
}

void record_names() {
  for (const std::string& name :
       {std::string("quote \" and \\ back"), std::string("line\nbreak\ttab"), std::string("nul\0byte", 8),
        std::string("\xff\xfe no UTF-8"), std::string(10'000, 'x'), std::string(), std::string("<script>&amp;"),
        std::string(159, 'y') + "\xc3\xa4"}) {
    const Range range(name);
  }
}

void record_wait(const std::string& folder) {
  while (::access((folder + "/go").c_str(), F_OK) != 0) std::this_thread::sleep_for(1ms);
  const Range range("long");
  std::cout << "waits" << std::endl;
  std::this_thread::sleep_for(1h);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string kind = argv[2];
  const int number = argc > 3 ? std::atoi(argv[3]) : 0;
  if (kind == "steps") train(argv[1], number);
  if (kind == "for_ever") train(argv[1], std::numeric_limits<int>::max());
  if (kind == "ranges") record_ranges(number);
  if (kind == "threads") record_threads(number);
  if (kind == "names") record_names();
  if (kind == "waits") record_wait(argv[1]);
  if (kind == "own" && argc > 4) {
    const ddp::Timeline timeline(argv[4]);
    train(argv[1], number);
  }
  return 0;
}
