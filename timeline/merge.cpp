#include "timeline/merge.h"

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "base/timeline/trace_file.h"
#include "timeline/trace_reader.h"

namespace ddp::timelines {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
constexpr std::size_t kFlushBytes = std::size_t{1} << 20;

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw TraceError(file + ": " + why);
}

// Reads a line and removes its trailing comma. Returns false at the end.
bool next_line(std::istream& file, std::string& line) {
  line.clear();
  for (int byte = file.get(); byte != std::char_traits<char>::eof(); byte = file.get()) {
    if (byte == '\n') {
      if (line.ends_with(',')) line.pop_back();
      return true;
    }
    if (line.size() < kMaxLineBytes) line += static_cast<char>(byte);
  }
  return false;  // the last line is truncated: it has no newline
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
  if (!line.ends_with(open)) refuse(name, "it is not a timeline of ddprun");
  line.resize(line.size() - open.size());
  const auto document = ordered_json::parse(line + "}", nullptr, /*allow_exceptions=*/false);
  Header header;
  if (document.is_object() && document.contains("otherData")) header.about = document["otherData"];
  if (!header.about.is_object() || header.about.value("writer", "") != "ddprun timeline 1") {
    refuse(name, "it is not a timeline of ddprun");
  }
  return header;
}

// Adds microseconds, and rounds the result to the three decimals that the file uses.
void shift(ordered_json& object, const char* key, double microseconds) {
  if (object.contains(key) && object[key].is_number()) {
    object[key] = std::round((object[key].get<double>() + microseconds) * 1000) / 1000;
  }
}

class Merger {
 public:
  explicit Merger(detail::TraceFile& out) : out_(out) {}

  void add(const std::string& name, std::istream& file, double shift_by) {
    std::map<std::int64_t, int> restarts;  // for each rank, the restart that its next events belong to
    for (std::string line; next_line(file, line);) {
      if (!line.starts_with("{\"ph\":")) {
        if (line.starts_with("],\"ddprun\":")) add_totals(line);
        continue;
      }
      auto event = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!event.is_object() || !event.contains("pid") || !event["pid"].is_number_integer())
        refuse(name, "one of its traceEvents is not an event");
      const auto rank = event["pid"].get<std::int64_t>();
      if (event.value("name", "") == "process_name") restarts[rank] = restart_in(event);
      claim(rank, restarts[rank], name);
      shift(event, "ts", shift_by);
      if (event.contains("args")) shift(event["args"], "started", shift_by);
      out_.add(event.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
      if (event.value("ph", "") != "M") ++events_;
      if (out_.waiting() > kFlushBytes) out_.flush();
      if (!out_.problem().empty()) refuse(out_.path(), out_.problem());
    }
  }

  std::size_t finish() {
    ordered_json totals{{"lost_events", lost_}};
    if (!clock_errors_.empty()) totals["clock_error_us"] = clock_errors_;
    out_.set_totals(totals.dump());
    out_.flush();
    if (!out_.problem().empty()) refuse(out_.path(), out_.problem());
    return events_;
  }

 private:
  static int restart_in(const ordered_json& event) {
    const auto args = event.value("args", ordered_json::object());
    return args.is_object() ? restart_of(args.value("name", "")) : 0;
  }
  // After a restart, a rank may be on another node if nodes joined or left the job.
  void claim(std::int64_t rank, int restart, const std::string& name) {
    const auto [owner, is_new] = owners_.try_emplace({rank, restart}, name);
    if (owner->second == name) return;
    refuse(name, "rank " + std::to_string(rank) + (restart > 0 ? " of restart " + std::to_string(restart) : "") +
                     " is in " + owner->second + " as well");
  }
  void add_totals(const std::string& line) {
    const auto document = ordered_json::parse("{\"x\":[" + line, nullptr, /*allow_exceptions=*/false);
    if (!document.is_object() || !document["ddprun"].is_object()) return;
    const auto lost = document["ddprun"].value("lost_events", ordered_json::object());
    for (const auto& [rank, count] : lost.items()) {
      if (count.is_number_unsigned()) {
        lost_[rank] = lost_.value(rank, std::uint64_t{0}) + count.get<std::uint64_t>();
      }
    }
    const auto errors = document["ddprun"].value("clock_error_us", ordered_json::object());
    for (const auto& [rank, error] : errors.items()) clock_errors_[rank] = error;
  }

  detail::TraceFile& out_;
  std::map<std::pair<std::int64_t, int>, std::string> owners_;  // by rank and restart
  ordered_json lost_ = ordered_json::object();
  ordered_json clock_errors_ = ordered_json::object();
  std::size_t events_ = 0;
};

struct Part {
  std::string name;
  std::ifstream file;
  Header header;
};

// Identifies a file by device and inode, so that different names of the same file are equal. Returns nullopt if there
// is no such file.
std::optional<std::pair<dev_t, ino_t>> identity_of(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

// Opens all input files before `out` is written, because one of them may be the same file as `out`.
std::vector<Part> open_parts(const std::vector<std::string>& files, const std::string& out) {
  const auto target = identity_of(out);
  std::map<std::pair<dev_t, ino_t>, std::string> known;
  std::vector<Part> parts;
  for (const std::string& name : files) {
    Part part{.name = name, .file = open_trace(name), .header = {}};
    const auto identity = identity_of(name);
    if (identity && identity == target) refuse(out, "it is one of the files to merge");
    if (identity && !known.emplace(*identity, name).second) {
      refuse(name, known.at(*identity) == name ? "it is given twice" : "it is the same file as " + known.at(*identity));
    }
    part.header = read_header(part.file, name);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

MergeResult merge_traces(const std::vector<std::string>& files, const std::string& out) {
  MergeResult result;
  std::vector<Part> parts = open_parts(files, out);
  if (parts.empty()) return result;
  const Header& first = parts.front().header;
  std::optional<detail::TraceFile> target;
  try {
    target.emplace(out, first.about.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  } catch (const std::runtime_error& error) {
    refuse(out, error.what());
  }
  Merger merger(*target);
  for (Part& part : parts) {
    const bool is_same_clock = part.header.boot() == first.boot() && !first.boot().empty();
    if (!is_same_clock) result.by_time_of_day.push_back(part.name);
    const std::int64_t ahead =
        is_same_clock ? part.header.steady() - first.steady() : part.header.wall() - first.wall();
    merger.add(part.name, part.file, static_cast<double>(ahead) / 1000);
  }
  result.events = merger.finish();
  return result;
}

}  // namespace ddp::timelines
