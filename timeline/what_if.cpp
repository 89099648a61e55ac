#include "timeline/what_if.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <span>

#include "base/utf8.h"

namespace ddp::timelines {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array kBandwidths = {Unit{"kbit", 1e3 / 8},  Unit{"Mbit", 1e6 / 8}, Unit{"Gbit", 1e9 / 8},
                                    Unit{"Tbit", 1e12 / 8}, Unit{"kB", 1e3},       Unit{"MB", 1e6},
                                    Unit{"GB", 1e9}};
constexpr std::array kTimes = {Unit{"ns", 1}, Unit{"us", 1e3}, Unit{"ms", 1e6}, Unit{"s", 1e9}};

// A kind of quantity: its units, and the range of values for which a prediction makes sense.
struct Quantity {
  std::span<const Unit> units;
  double least;
  double most;
  std::string_view range;  // of `least` and `most`, as text
};
constexpr Quantity kBandwidth{kBandwidths, 1e3 / 8, 1e15 / 8, "1kbit .. 1000Tbit"};
constexpr Quantity kLatency{kTimes, 0, 1e10, "0s .. 10s"};
constexpr std::int64_t kMaxPredicted = std::int64_t{1} << 20;

// Quotes text of the user for an error message. Long text is cut.
std::string quoted(std::string_view text) {
  constexpr std::size_t kMaxBytes = 120;
  const std::string_view start = text.substr(0, kMaxBytes);
  if (start.size() == text.size()) return "\"" + detail::shown_text(text) + "\"";
  return "\"" + detail::shown_text(start.substr(0, detail::whole_characters(start))) + "...\"";
}

[[noreturn]] void refuse_text(const std::string& expected, std::string_view got) {
  throw WhatIfError("expected " + expected + ", got " + quoted(got));
}

[[noreturn]] void refuse(std::string_view key, const std::string& expected, std::string_view got) {
  throw WhatIfError(std::string(key) + ": expected " + expected + ", got " + quoted(got));
}

std::int64_t whole_number(std::string_view key, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && number >= 1 && number <= kMaxPredicted) return number;
  refuse(key, "a whole number in 1 .. " + std::to_string(kMaxPredicted), text);
}

double with_unit(std::string_view key, std::string_view text, const Quantity& quantity) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const std::string_view name(end, static_cast<std::size_t>(last - end));
  std::string names;
  for (const Unit& unit : quantity.units) {
    names += (names.empty() ? "" : &unit == &quantity.units.back() ? " or " : ", ") + std::string(unit.name);
    const double value = number * unit.factor;
    const bool is_valid = error == std::errc() && quantity.least <= value && value <= quantity.most;
    if (is_valid && name == unit.name) return value;
  }
  refuse(key, "a number with " + names + ", in " + std::string(quantity.range), text);
}

Algorithm algorithm_named(std::string_view key, std::string_view text) {
  for (const Algorithm each : {Algorithm::kRing, Algorithm::kHierarchical}) {
    if (text == name_of(each)) return each;
  }
  refuse(key, "ring or hierarchical", text);
}

using Values = std::map<std::string_view, std::string_view>;

constexpr std::array<std::string_view, 7> kKeys = {"ranks",           "hosts",         "bandwidth", "latency",
                                                   "local_bandwidth", "local_latency", "algorithm"};

Values split(std::string_view text) {
  Values values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equals);
    if (equals == part.size() || std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      std::string keys;
      for (const std::string_view each : kKeys) keys += (keys.empty() ? "" : ", ") + std::string(each);
      refuse_text("KEY=VALUE, KEY being one of " + keys, part);
    }
    if (!values.try_emplace(key, part.substr(equals + 1)).second) refuse(key, "one value", text);
    begin = end + 1;
  }
  return values;
}

std::optional<std::string_view> value_of(const Values& values, std::string_view key) {
  const auto found = values.find(key);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

void read_link(const Values& values, std::string_view bandwidth, std::string_view latency, Link& link) {
  if (const auto value = value_of(values, bandwidth)) link.bandwidth = with_unit(bandwidth, *value, kBandwidth);
  if (const auto value = value_of(values, latency)) link.latency = with_unit(latency, *value, kLatency);
}

}  // namespace

Scenario parse_what_if(std::string_view text) {
  const Values values = split(text);
  Scenario scenario;
  Placement& placement = scenario.placement;
  if (const auto ranks = value_of(values, "ranks")) placement.ranks = whole_number("ranks", *ranks);
  const auto hosts = value_of(values, "hosts");
  placement.hosts = hosts ? whole_number("hosts", *hosts) : placement.ranks;
  Network& network = scenario.network;
  read_link(values, "bandwidth", "latency", network.between);
  network.within = network.between;
  read_link(values, "local_bandwidth", "local_latency", network.within);
  if (const auto name = value_of(values, "algorithm")) scenario.algorithm = algorithm_named("algorithm", *name);
  for (const std::string_view key : {"ranks", "bandwidth", "latency"}) {
    if (!values.contains(key)) refuse_text("a value for " + std::string(key), text);
  }
  if (placement.ranks % placement.hosts != 0) {
    refuse("hosts",
           "a divisor of the " + std::to_string(placement.ranks) + " ranks, so that each host has equally many",
           *hosts);
  }
  return scenario;
}

}  // namespace ddp::timelines
