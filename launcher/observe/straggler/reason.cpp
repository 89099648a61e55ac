#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>

#include "launcher/observe/straggler/straggler.h"
#include "launcher/os/system/formatted.h"

namespace launcher {
namespace {

// Shares of the time by which the rank must be above the median of all.
constexpr double kThrottled = 0.03;
constexpr double kWaitsForCpu = 0.03;
constexpr double kWaitsForDisk = 0.05;
constexpr double kSeenAtDisk = 0.1;
constexpr double kFaultsPerSecond = 20;
constexpr double kSlowerClock = 0.95;
// Of its own time.
constexpr double kSleeps = 0.2;

// Of nvmlClocksEventReasons.
struct Limit {
  std::uint64_t bits;
  const char* text;
};
constexpr std::array kLimits = {
    Limit{0x20 | 0x40, "its GPU is too hot"}, Limit{0x80, "its GPU's power supply brakes it"},
    Limit{0x08, "its GPU's hardware slows it down"}, Limit{0x04, "its GPU is at its power limit"}};

using Value = std::function<double(const RankShare&)>;

double above_median(const RankShare& slow, const Slice& all, const Value& value) {
  return value(slow) - median_of(all, value);
}

Value share_of_time(std::uint64_t Hindrances::*part) {
  return [part](const RankShare& rank) { return rank.time > 0 ? static_cast<double>(rank.held.*part) / rank.time : 0; };
}

std::string reason_of_gpu(const RankShare& slow, const Slice& all) {
  if (!slow.gpu) return "";
  std::uint64_t others = 0;
  for (const RankShare& share : all) {
    if (share.rank != slow.rank && share.gpu) others |= share.gpu->limits;
  }
  for (const Limit& limit : kLimits) {
    if ((slow.gpu->limits & limit.bits) == 0 || (others & limit.bits) != 0) continue;
    return std::string(limit.text) + " (" + std::to_string(slow.gpu->celsius) + " degrees, " +
           std::to_string(slow.gpu->clock_mhz) + " MHz)";
  }
  const double clock =
      median_of(all, [](const RankShare& each) { return each.gpu ? static_cast<double>(each.gpu->clock_mhz) : 0; });
  if (slow.gpu->clock_mhz >= kSlowerClock * clock) return "";
  return "its GPU runs at " + std::to_string(slow.gpu->clock_mhz) + " MHz, the others' at " +
         std::to_string(std::lround(clock));
}

std::string reason_of_disk(const RankShare& slow, const Slice& all) {
  const Value faults = [](const RankShare& rank) {
    return rank.time > 0 ? static_cast<double>(rank.held.major_faults) * 1e6 / rank.time : 0;
  };
  if (const double rate = above_median(slow, all, faults); rate > kFaultsPerSecond) {
    return "its memory is swapped in, or read from files: " + std::to_string(std::lround(faults(slow))) +
           " times a second";
  }
  const Value disk = share_of_time(&Hindrances::disk_us);
  if (above_median(slow, all, disk) > kWaitsForDisk)
    return "it waits for a disk " + percent(disk(slow)) + " of the time";
  const Value seen = [](const RankShare& rank) {
    return rank.held.looks > 0 ? static_cast<double>(rank.held.disk_looks) / static_cast<double>(rank.held.looks) : 0;
  };
  if (above_median(slow, all, seen) > kSeenAtDisk) return "it waits for a disk " + percent(seen(slow)) + " of the time";
  return "";
}

// What its own time is made of, where nothing sets the rank apart from the others. As the slow one it hardly waits for
// them, so nearly all that it computes is in its own time; of the others that is not known.
std::string make_of_own_time(const RankShare& slow) {
  if (slow.held.on_cpu_us == 0 || slow.own() <= 0) return "";
  const double computes = std::min(1.0, static_cast<double>(slow.held.on_cpu_us) / slow.own());
  const double sleeps = std::max(0.0, 1 - computes - static_cast<double>(slow.held.run_delay_us) / slow.own());
  if (sleeps > kSleeps) {
    return "it sleeps " + percent(sleeps) +
           " of its own time: for a lock, the network, a device or another process, say";
  }
  return "it computes " + percent(computes) + " of its own time: it has more to do than the others, or a slower CPU";
}

}  // namespace

std::string reason_of(const RankShare& slow, const Slice& all) {
  const Value throttled = share_of_time(&Hindrances::throttled_us);
  if (above_median(slow, all, throttled) > kThrottled) {
    return "its cgroup throttles it: for " + percent(throttled(slow)) + " of the time its CPU time was used up";
  }
  if (std::string text = reason_of_disk(slow, all); !text.empty()) return text;
  const int cpus = static_cast<int>(median_of(all, [](const RankShare& each) { return each.held.cpus; }));
  const std::string fewer = slow.held.cpus > 0 && slow.held.cpus < cpus
                                ? "it may use " + std::to_string(slow.held.cpus) + " CPU" +
                                      (slow.held.cpus > 1 ? "s" : "") + ", the others " + std::to_string(cpus)
                                : "";
  const Value delayed = share_of_time(&Hindrances::run_delay_us);
  if (above_median(slow, all, delayed) > kWaitsForCpu) {
    return "it is ready and without a CPU " + percent(delayed(slow)) + " of the time: others run on its CPUs" +
           (fewer.empty() ? "" : " (" + fewer + ")");
  }
  if (!fewer.empty()) return fewer;
  std::string text = reason_of_gpu(slow, all);
  return text.empty() ? make_of_own_time(slow) : text;
}

}  // namespace launcher
