#include "timeline/what_if.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
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
constexpr std::int64_t kMaxPredicted = std::int64_t{1} << 20;

[[noreturn]] void refuse(std::string_view key, const std::string& expected, std::string_view got) {
  throw WhatIfError(std::string(key) + ": expected " + expected + ", got \"" + detail::shown_text(got) + "\"");
}

[[noreturn]] void refuse_text(const std::string& expected, std::string_view got) {
  throw WhatIfError("expected " + expected + ", got \"" + detail::shown_text(got) + "\"");
}

std::int64_t whole_number(std::string_view key, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && number >= 1 && number <= kMaxPredicted) return number;
  refuse(key, "a whole number in 1 .. " + std::to_string(kMaxPredicted), text);
}

double with_unit(std::string_view key, std::string_view text, std::span<const Unit> units, bool may_be_zero) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const std::string_view name(end, static_cast<std::size_t>(last - end));
  std::string names;
  for (const Unit& unit : units) {
    names += (names.empty() ? "" : &unit == &units.back() ? " or " : ", ") + std::string(unit.name);
    const double value = number * unit.factor;
    const bool is_valid = error == std::errc() && std::isfinite(value) && (may_be_zero ? number >= 0 : number > 0);
    if (is_valid && name == unit.name) return value;
  }
  refuse(key, std::string(may_be_zero ? "a number" : "a number above 0") + " with " + names, text);
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
  for (const std::string_view key : {"ranks", "bandwidth", "latency"}) {
    if (!values.contains(key)) refuse_text("a value for " + std::string(key), text);
  }
  return values;
}

}  // namespace

Scenario parse_what_if(std::string_view text) {
  const Values values = split(text);
  Scenario scenario;
  Placement& placement = scenario.placement;
  placement.ranks = whole_number("ranks", values.at("ranks"));
  placement.hosts = values.contains("hosts") ? whole_number("hosts", values.at("hosts")) : placement.ranks;
  if (placement.ranks % placement.hosts != 0) {
    refuse("hosts",
           "a divisor of the " + std::to_string(placement.ranks) + " ranks, so that each host has equally many",
           values.at("hosts"));
  }
  Link& between = scenario.network.between;
  between.bandwidth = with_unit("bandwidth", values.at("bandwidth"), kBandwidths, /*may_be_zero=*/false);
  between.latency = with_unit("latency", values.at("latency"), kTimes, /*may_be_zero=*/true);
  Link& within = scenario.network.within = between;
  if (const auto value = values.find("local_bandwidth"); value != values.end())
    within.bandwidth = with_unit(value->first, value->second, kBandwidths, /*may_be_zero=*/false);
  if (const auto value = values.find("local_latency"); value != values.end())
    within.latency = with_unit(value->first, value->second, kTimes, /*may_be_zero=*/true);
  if (const auto value = values.find("algorithm"); value != values.end())
    scenario.algorithm = algorithm_named(value->first, value->second);
  return scenario;
}

}  // namespace ddp::timelines
