#include "timeline/merge.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>

#include "base/timeline/trace_file.h"
#include "timeline/trace_reader.h"

namespace ddp::timelines {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kLongestLine = std::size_t{1} << 20;
constexpr std::size_t kMuchText = std::size_t{1} << 20;

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw TraceError(file + ": " + why);
}

// A line, without the comma behind it; false at the end.
bool next_line(std::istream& file, std::string& line) {
  line.clear();
  for (int byte = file.get(); byte != std::char_traits<char>::eof(); byte = file.get()) {
    if (byte == '\n') {
      if (line.ends_with(',')) line.pop_back();
      return true;
    }
    if (line.size() < kLongestLine) line += static_cast<char>(byte);
  }
  return false;  // what has no end was cut off
}

struct Header {
  ordered_json about{};
  std::string boot() const { return about.value("boot", ""); }
  std::int64_t steady() const { return about.value("steady_ns", std::int64_t{0}); }
  std::int64_t wall() const { return about.value("wall_ns", std::int64_t{0}); }
};

Header read_header(std::istream& file, const std::string& name) {
  std::string line;
  next_line(file, line);
  const std::string open = ",\"traceEvents\":[";
  if (!line.ends_with(open)) refuse(name, "it is no timeline of ddprun");
  line.resize(line.size() - open.size());
  const auto document = ordered_json::parse(line + "}", nullptr, /*allow_exceptions=*/false);
  Header header;
  if (document.is_object() && document.contains("otherData")) header.about = document["otherData"];
  if (!header.about.is_object() || header.about.value("writer", "") != "ddprun timeline 1") {
    refuse(name, "it is no timeline of ddprun");
  }
  return header;
}

// Microseconds with the three digits that the file has.
void shift(ordered_json& object, const char* key, double microseconds) {
  if (object.contains(key) && object[key].is_number()) {
    object[key] = std::round((object[key].get<double>() + microseconds) * 1000) / 1000;
  }
}

class Merger {
 public:
  explicit Merger(detail::TraceFile& out) : out_(out) {}

  void add(const std::string& name, std::istream& file, double shift_by) {
    for (std::string line; next_line(file, line);) {
      if (!line.starts_with("{\"ph\":")) {
        if (line.starts_with("],\"ddprun\":")) add_totals(line);
        continue;
      }
      auto event = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!event.is_object() || !event.contains("pid") || !event["pid"].is_number_integer())
        refuse(name, "an event in it is none");
      claim(event["pid"].get<std::int64_t>(), name);
      shift(event, "ts", shift_by);
      if (event.contains("args")) shift(event["args"], "started", shift_by);
      out_.add(event.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
      ++events_;
      if (out_.waiting() > kMuchText) out_.flush();
      if (!out_.problem().empty()) refuse(out_.path(), out_.problem());
    }
  }

  std::size_t finish() {
    out_.set_totals(ordered_json{{"lost_events", lost_}}.dump());
    out_.flush();
    if (!out_.problem().empty()) refuse(out_.path(), out_.problem());
    return events_;
  }

 private:
  void claim(std::int64_t rank, const std::string& name) {
    const auto [owner, is_new] = owners_.try_emplace(rank, name);
    if (owner->second != name) refuse(name, "rank " + std::to_string(rank) + " is in " + owner->second + " as well");
  }
  void add_totals(const std::string& line) {
    const auto document = ordered_json::parse("{\"x\":[" + line, nullptr, /*allow_exceptions=*/false);
    if (!document.is_object() || !document["ddprun"].is_object()) return;
    const auto lost = document["ddprun"].value("lost_events", ordered_json::object());
    for (const auto& [rank, count] : lost.items()) {
      if (count.is_number_unsigned()) lost_[rank] = count;
    }
  }

  detail::TraceFile& out_;
  std::map<std::int64_t, std::string> owners_;
  ordered_json lost_ = ordered_json::object();
  std::size_t events_ = 0;
};

}  // namespace

MergeResult merge_traces(const std::vector<std::string>& files, const std::string& out) {
  MergeResult result;
  std::optional<Header> first;
  std::optional<detail::TraceFile> target;
  std::optional<Merger> merger;
  for (const std::string& name : files) {
    if (name == out) refuse(out, "it is one of the files to merge");
    std::ifstream file(name, std::ios::binary);
    if (!file) refuse(name, "it cannot be read");
    const Header header = read_header(file, name);
    if (!first) {
      first = header;
      try {
        target.emplace(out, header.about.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
      } catch (const std::runtime_error& error) {
        refuse(out, error.what());
      }
      merger.emplace(*target);
    }
    const bool is_same_clock = header.boot() == first->boot() && !header.boot().empty();
    if (!is_same_clock) result.by_time_of_day.push_back(name);
    const std::int64_t ahead = is_same_clock ? header.steady() - first->steady() : header.wall() - first->wall();
    merger->add(name, file, static_cast<double>(ahead) / 1000);
  }
  if (merger) result.events = merger->finish();
  return result;
}

}  // namespace ddp::timelines
