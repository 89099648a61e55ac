#include "launcher/observe/straggler/straggler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "launcher/observe/straggler/kernel_figures.h"
#include "launcher/observe/straggler/step_interval.h"
#include "launcher/observe/straggler/straggler_watch.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Phase = ddp::progress::Phase;

constexpr auto kData = static_cast<std::size_t>(Phase::kData);
constexpr auto kForward = static_cast<std::size_t>(Phase::kForward);
constexpr auto kBackward = static_cast<std::size_t>(Phase::kBackward);

// Ranks in lockstep: a step is as long as the slowest one's own time and a transfer, and the others wait.
class Job {
 public:
  explicit Job(int size) : own_(static_cast<std::size_t>(size), {{kData, 2000}, {kForward, 8000}}) {
    for (int rank = 0; rank < size; ++rank) {
      samples_.push_back({.rank = rank, .totals = {.process = 100 + rank, .steps = 1}, .delays = {.cpus = 4}});
    }
  }
  // Microseconds a step.
  double& own(int rank, std::size_t phase) { return own_[static_cast<std::size_t>(rank)][phase]; }
  RankSample& sample(int rank) { return samples_[static_cast<std::size_t>(rank)]; }
  double noise = 0;  // of each step's own time, as a share

  const std::vector<RankSample>& run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    return samples_;
  }

 private:
  void step() {
    constexpr double kTransfer = 500;
    std::vector<double> times;
    for (std::size_t rank = 0; rank < samples_.size(); ++rank) {
      double time = 0;
      for (const auto& [phase, mean] : own_[rank]) {
        const double took = mean * std::max(0.2, 1 + noise * normal_(random_));
        samples_[rank].totals.spent[phase] += static_cast<std::uint64_t>(took);
        time += took;
      }
      times.push_back(time);
    }
    const double slowest = *std::max_element(times.begin(), times.end());
    for (std::size_t rank = 0; rank < samples_.size(); ++rank) {
      auto& totals = samples_[rank].totals;
      const auto waited = static_cast<std::uint64_t>(slowest - times[rank] + kTransfer);
      totals.spent[kBackward] += waited;
      totals.waited[kBackward] += waited;
      totals.time += static_cast<std::uint64_t>(slowest + kTransfer);
      ++totals.steps;
    }
  }

  std::vector<std::map<std::size_t, double>> own_;
  std::vector<RankSample> samples_;
  std::mt19937 random_{7};
  std::normal_distribution<double> normal_;
};

// What a tracker says of so many looks, with so many steps between two.
std::vector<StragglerChange> watch(Job& job, int sample_count, int steps, StepIntervalBuilder& builder,
                                   StragglerTracker& tracker) {
  std::vector<StragglerChange> all;
  for (int look = 0; look < sample_count; ++look) {
    auto interval = builder.add(job.run(steps));
    if (!interval) continue;
    for (auto& news : tracker.add(std::move(*interval))) all.push_back(std::move(news));
  }
  return all;
}
std::vector<StragglerChange> watch(Job& job, int sample_count = 60, int steps = 50) {
  StepIntervalBuilder builder;
  StragglerTracker tracker(0.1);
  return watch(job, sample_count, steps, builder, tracker);
}

TEST_CASE("Straggler: a rank that takes a fifth longer is named with its phase, once") {
  for (const int size : {2, 3, 4, 64}) {
    for (const auto& [phase, name] : {std::pair(kData, "data"), std::pair(kForward, "forward")}) {
      Job job(size);
      job.own(size - 1, phase) += 2000;
      const auto news = watch(job);
      REQUIRE(news.size() == 1);
      CHECK(news[0].straggler.rank == size - 1);
      CHECK(news[0].straggler.phase == name);
      CHECK(std::abs(news[0].straggler.excess - 0.2) < 0.01);
      CHECK_THAT(to_text(news[0].straggler),
                 ContainsSubstring("20 % above the median, 12.0 ms instead of 10.0 ms a step"));
    }
  }
}

TEST_CASE("Straggler: a phase of the program's own is called by its name, also where there are several") {
  Job job(3);
  StepIntervalBuilder builder;
  StragglerTracker tracker(0.1);
  std::vector<StragglerChange> news;
  constexpr auto kUser = static_cast<std::size_t>(Phase::kUser);
  job.own(1, kUser) = 3000;
  job.own(0, kUser) = job.own(2, kUser) = 500;
  for (int look = 0; look < 60; ++look) {
    for (int rank = 0; rank < 3; ++rank) {
      auto& totals = job.sample(rank).totals;
      totals.named["logging"].spent = totals.spent[kUser] / 5;
      totals.named["warm-up"].spent = totals.spent[kUser] / 5 * 4;
    }
    for (auto& each : watch(job, 1, 50, builder, tracker)) news.push_back(std::move(each));
  }
  REQUIRE(news.size() == 1);
  CHECK(news[0].straggler.rank == 1);
  CHECK(news[0].straggler.phase == "warm-up");
}

TEST_CASE("Straggler: it is told when it is over, and not before") {
  Job job(3);
  StepIntervalBuilder builder;
  StragglerTracker tracker(0.1);
  job.own(1, kData) += 3000;
  REQUIRE(watch(job, 40, 50, builder, tracker).size() == 1);
  job.own(1, kData) -= 1800;  // below the threshold, and still above its half
  CHECK(watch(job, 40, 50, builder, tracker).empty());
  job.own(1, kData) -= 1200;
  const auto news = watch(job, 40, 50, builder, tracker);
  REQUIRE(news.size() == 1);
  CHECK(news[0].is_over);
  CHECK(news[0].straggler.rank == 1);
  CHECK(news[0].seconds > 20);
}

TEST_CASE("Straggler: two of several are both named") {
  Job job(8);
  job.own(2, kData) += 2500;
  job.own(5, kForward) += 1500;
  const auto news = watch(job);
  REQUIRE(news.size() == 2);
  CHECK(news[0].straggler.rank == 2);
  CHECK(news[1].straggler.rank == 5);
}

TEST_CASE("Straggler: nobody is named in even jobs, however much single steps differ") {
  for (const double noise : {0.0, 0.1, 0.5, 1.0}) {
    Job job(4);
    job.noise = noise;
    CHECK(watch(job, 400, 20).empty());
  }
}

TEST_CASE("Straggler: below the threshold nobody is named") {
  Job job(4);
  job.own(3, kForward) += 800;
  CHECK(watch(job).empty());
}

TEST_CASE("Straggler: single slow moments name nobody, whatever they cost") {
  Job job(3);
  StepIntervalBuilder builder;
  StragglerTracker tracker(0.1);
  for (int i = 0; i < 20; ++i) {
    job.own(0, kForward) += 100'000;  // an evaluation on one rank
    CHECK(watch(job, 1, 20, builder, tracker).empty());
    job.own(0, kForward) -= 100'000;
    CHECK(watch(job, 7, 20, builder, tracker).empty());
  }
}

TEST_CASE("Straggler: fifty steps are needed, however long they take") {
  Job job(2);
  job.own(0, kForward) = 20e6;
  job.own(1, kForward) = 16e6;
  CHECK(watch(job, 99, 1).empty());
  CHECK(watch(job, 110, 1).size() == 1);
}

TEST_CASE("Straggler: ranks for which nobody waits are not named, as in independent programs") {
  Job job(3);
  StepIntervalBuilder builder;
  StragglerTracker tracker(0.1);
  for (int look = 0; look < 100; ++look) {
    for (int rank = 0; rank < 3; ++rank) {
      auto& totals = job.sample(rank).totals;
      totals.steps += 20;
      totals.time += 500'000;
      totals.spent[kForward] += rank == 2 ? 500'000 : 300'000;
      totals.spent[static_cast<std::size_t>(Phase::kOther)] += rank == 2 ? 0 : 200'000;
    }
    auto interval = builder.add(job.run(0));
    if (interval) CHECK(tracker.add(std::move(*interval)).empty());
  }
}

TEST_CASE("Straggler: a rank that ends, or joins the others, holds up no interval") {
  Job job(3);
  StepIntervalBuilder builder;
  std::vector<RankSample> all = job.run(10);
  CHECK_FALSE(builder.add(all));
  const RankSample joined = all[2];
  int intervals = 0;
  for (int look = 0; look < 20; ++look) {
    all = job.run(10);
    all[2] = joined;
    const auto interval = builder.add(all);
    if (!interval) continue;
    ++intervals;
    CHECK(interval->size() == 2);
  }
  CHECK(intervals > 10);
}

TEST_CASE("Straggler: another program in the place of a rank begins anew") {
  Job job(2);
  StepIntervalBuilder builder;
  CHECK_FALSE(builder.add(job.run(10)));
  CHECK(builder.add(job.run(10)));
  job.sample(0).totals = {.process = 999, .steps = 3};
  const auto interval = builder.add(job.run(10));
  CHECK((!interval || interval->size() == 1));
}

TEST_CASE("Straggler: waits for a CPU must last longer than other delays") {
  const auto looks_until_named = [](bool waits_for_cpu) {
    Job job(2);
    StepIntervalBuilder builder;
    StragglerTracker tracker(0.1);
    job.own(1, kForward) += 2000;
    for (int look = 1; look < 200; ++look) {
      if (waits_for_cpu) job.sample(1).delays.run_delay_us += 50 * 2000;
      if (!watch(job, 1, 50, builder, tracker).empty()) return look;
    }
    return 0;
  };
  const int otherwise = looks_until_named(false);
  CHECK(otherwise > 0);
  CHECK(looks_until_named(true) > otherwise * 3 / 2);
}

TEST_CASE("Straggler: the reason is what kernel and driver say of this rank and not of the others") {
  const auto reason = [](const std::function<void(Job & job)>& happens) {
    Job job(3);
    StepIntervalBuilder builder;
    StragglerTracker tracker(0.1);
    job.own(2, kForward) += 3000;
    std::string text = "not named";
    for (int look = 0; look < 60; ++look) {
      happens(job);
      for (int rank = 0; rank < 3; ++rank) ++job.sample(rank).delays.sample_count;
      for (const auto& news : watch(job, 1, 50, builder, tracker)) text = news.straggler.reason;
    }
    return text;
  };
  CHECK(reason([](Job&) {}).empty());
  CHECK_THAT(reason([](Job& job) { job.sample(2).delays.throttled_us += 100'000; }),
             ContainsSubstring("its cgroup throttles it"));
  CHECK(reason([](Job& job) {
          for (int rank = 0; rank < 3; ++rank) job.sample(rank).delays.throttled_us += 100'000;
        }).empty());
  CHECK_THAT(reason([](Job& job) { job.sample(2).delays.run_delay_us += 120'000; }),
             ContainsSubstring("runnable but has no CPU"));
  CHECK_THAT(reason([](Job& job) { job.sample(2).delays.major_faults += 100; }), ContainsSubstring("swapped in"));
  CHECK_THAT(reason([](Job& job) { job.sample(2).delays.disk_us += 80'000; }), ContainsSubstring("waits for a disk"));
  CHECK_THAT(reason([](Job& job) { ++job.sample(2).delays.disk_sample_count; }), ContainsSubstring("waits for a disk"));
  CHECK(reason([](Job& job) { job.sample(2).delays.cpus = 1; }) == "it may use 1 CPU, the others 4");
  // 12.5 ms a step are its own.
  CHECK(reason([](Job& job) { job.sample(2).delays.on_cpu_us += 50 * 12'000; }) ==
        "it computes 92 % of its own time: it has more to do than the others, or a slower CPU");
  CHECK(reason([](Job& job) { job.sample(2).delays.on_cpu_us += 50 * 6'000; }) ==
        "it sleeps 54 % of its own time, waiting for example for a lock, the network, a device or another process");
  const auto with_gpus = [&](const std::function<void(GpuState & gpu)>& change) {
    return reason([&](Job& job) {
      for (int rank = 0; rank < 3; ++rank) job.sample(rank).gpu = GpuState{.clock_mhz = 1700, .celsius = 60};
      change(*job.sample(2).gpu);
    });
  };
  CHECK(with_gpus([](GpuState&) {}).empty());
  CHECK(with_gpus([](GpuState& gpu) { gpu = {.clock_mhz = 900, .celsius = 92, .limits = 0x40}; }) ==
        "its GPU is too hot (92 degrees, 900 MHz)");
  CHECK(with_gpus([](GpuState& gpu) { gpu.clock_mhz = 1200; }) == "its GPU runs at 1200 MHz, the others' at 1700");
}

TEST_CASE("Straggler: the median of two is the lower one") {
  CHECK(low_median({}) == 0);
  CHECK(low_median({3}) == 3);
  CHECK(low_median({4, 3}) == 3);
  CHECK(low_median({9, 1, 5}) == 5);
  CHECK(low_median({9, 1, 5, 7}) == 5);
}

TEST_CASE("Efficiency: the line says where the time went and whose fault it was") {
  Job job(2);
  job.own(1, kForward) += 10'000;
  StepIntervalBuilder builder;
  Efficiency efficiency;
  CHECK(efficiency.text().empty());
  for (int look = 0; look < 20; ++look) {
    if (const auto interval = builder.add(job.run(50))) efficiency.add(*interval);
  }
  // Of 20.5 ms a step rank 0 works 10 and rank 1 works 20.
  CHECK(
      efficiency.text() ==
      "efficiency 73 %: data 10 %, forward 63 %, waiting for collectives 27 % of 19 s in 950 steps; 9.5 s (49 %) lost "
      "to the slowest rank, mostly rank 1");
}

TEST_CASE("Efficiency: a rank whose threads wait at once waits no longer than there was time") {
  Job job(2);
  StepIntervalBuilder builder;
  Efficiency efficiency;
  for (int look = 0; look < 20; ++look) {
    auto samples = job.run(50);
    for (RankSample& sample : samples) sample.totals.waited[kBackward] = 3 * sample.totals.time;
    if (const auto interval = builder.add(samples)) efficiency.add(*interval);
  }
  CHECK_THAT(efficiency.text(), ContainsSubstring("efficiency 0 %:") && ContainsSubstring("collectives 100 % of"));
}

TEST_CASE("Efficiency: phases of the program's own have their names") {
  Job job(2);
  constexpr auto kUser = static_cast<std::size_t>(Phase::kUser);
  for (int rank = 0; rank < 2; ++rank) job.own(rank, kUser) = 10'000;
  StepIntervalBuilder builder;
  Efficiency efficiency;
  for (int look = 0; look < 20; ++look) {
    for (int rank = 0; rank < 2; ++rank) {
      auto& totals = job.sample(rank).totals;
      totals.named["augmentation"].spent = totals.spent[kUser] / 4 * 3;
      totals.named["logging"].spent = totals.spent[kUser] / 8;
    }
    if (const auto interval = builder.add(job.run(50))) efficiency.add(*interval);
  }
  CHECK_THAT(efficiency.text(), ContainsSubstring("other phase 6 %, augmentation 37 %, logging 6 %, waiting"));
}

TEST_CASE("Efficiency: an even job loses nearly nothing") {
  Job job(2);
  StepIntervalBuilder builder;
  Efficiency efficiency;
  for (int look = 0; look < 20; ++look) {
    if (const auto interval = builder.add(job.run(50))) efficiency.add(*interval);
  }
  CHECK_THAT(efficiency.text(), ContainsSubstring("nearly nothing lost to the slowest rank"));
}

TEST_CASE("Kernel figures: times without a CPU are read as the kernel writes them") {
  CHECK(scheduled_in("123456789 7654321 42\n").run_delay_us == 7654);
  CHECK(scheduled_in("123456789 7654321 42\n").on_cpu_us == 123456);
  CHECK(scheduled_in("").run_delay_us == 0);
  CHECK(throttled_us("usage_usec 5\nnr_periods 1\nnr_throttled 1\nthrottled_usec 4711\n") == 4711);
  CHECK(throttled_us("nr_periods 0\nnr_throttled 0\nthrottled_time 4711000\n") == 4711);
  CHECK(throttled_us("usage_usec 5\n") == 0);
}

}  // namespace
}  // namespace launcher
