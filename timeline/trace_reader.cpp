#include "timeline/trace_reader.h"

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <istream>
#include <iterator>
#include <limits>
#include <streambuf>
#include <unordered_map>
#include <utility>

namespace ddp::timelines {
namespace {

// Passes on the bytes of a stream. Throws if a string in them is longer than `most` bytes.
class CheckedBytes : public std::streambuf {
 public:
  CheckedBytes(std::istream& from, std::size_t most) : from_(from), most_(most) {}

 protected:
  int_type underflow() override {
    from_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    const auto count = static_cast<std::size_t>(from_.gcount());
    if (count == 0) return traits_type::eof();
    for (std::size_t i = 0; i < count; ++i) look_at(buffer_[i]);
    setg(buffer_.data(), buffer_.data(), buffer_.data() + count);
    return traits_type::to_int_type(buffer_[0]);
  }

 private:
  void look_at(char byte) {
    if (!in_string_) {
      in_string_ = byte == '"';
      length_ = 0;
      return;
    }
    if (++length_ > most_) throw TraceError("it has a string of more than " + std::to_string(most_) + " bytes");
    if (std::exchange(is_escaped_, false)) return;
    is_escaped_ = byte == '\\';
    in_string_ = byte != '"';
  }

  std::istream& from_;
  std::size_t most_;
  std::array<char, 1 << 16> buffer_{};
  bool in_string_ = false;
  bool is_escaped_ = false;
  std::size_t length_ = 0;
};

using nlohmann::json;

constexpr std::array<std::string_view, kActivities> kNames = {
    "user",       "other",   "data", "forward",    "backward", "optimizer", "checkpoint",
    "evaluation", "closing", "wait", "collective", "bucket",   "device",    "step"};
// The maximum uptime of a host. A larger number is not a valid time.
constexpr double kMaxMicroseconds = 9e12;
constexpr double kMaxExactInteger = 9e15;
constexpr int kMaxTraceRestarts = 65'535;
constexpr std::string_view kWriter = "ddprun timeline 1";

struct Event {
  std::string form{};
  std::string name{};
  std::string category{};
  std::string arg_name{};
  std::optional<double> time{};
  double duration = 0;
  std::int64_t rank = -1;
  std::uint64_t lane = 0;
  std::int64_t number = -1;
  std::int64_t bytes = 0;
  std::optional<double> started{};
  bool is_unfinished = false;
};

std::string number_text(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", number);
  return text.data();
}

// Extracts the needed values from the events of the parser. path_ contains the keys that lead to the current position.
class Handler : public json::json_sax_t {
 public:
  Handler(Trace& trace, const ReadLimits& limits) : trace_(trace), limits_(limits) {}

  bool null() override { return true; }
  bool boolean(bool value) override {
    if (path_.size() == 1 && last_ == "cut_off") trace_.is_cut_off = value;
    if (is_in_event() && path_.size() == 3 && last_ == "unfinished") event_.is_unfinished = value;
    return true;
  }
  bool number_integer(number_integer_t value) override { return on_number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return on_number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return on_number(value); }
  bool string(string_t& value) override {
    if (is_in("otherData") && last_ == "writer") is_ours_ = value == kWriter;
    if (!is_in_event()) return true;
    if (path_.size() == 3 && last_ == "name") event_.arg_name = value;
    if (path_.size() > 2) return true;
    if (last_ == "ph") event_.form = std::move(value);
    if (last_ == "name") event_.name = std::move(value);
    if (last_ == "cat") event_.category = std::move(value);
    return true;
  }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*count*/) override {
    if (is_at_top_ && !is_ours_ && last_ == "traceEvents") refuse();
    const bool is_event = path_.size() == 1 && path_.front() == "traceEvents";
    push();
    if (is_event) event_ = {};
    return true;
  }
  bool key(string_t& value) override {
    last_ = std::move(value);
    return true;
  }
  bool end_object() override {
    if (path_.size() == 2 && path_.front() == "traceEvents") take();
    pop();
    return true;
  }
  bool start_array(std::size_t /*count*/) override {
    if (depth_ == 0) refuse();
    if (depth_ == 1 && last_ == "traceEvents" && !is_ours_) refuse();
    push();
    return true;
  }
  bool end_array() override {
    pop();
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/, const json::exception& /*error*/) override {
    failed_at_ = position;
    return false;
  }

  // `is_at_end`: the parser has read all bytes.
  void finish(bool is_parsed, bool is_at_end) {
    if (!is_ours_) refuse();
    // A truncated file ends with an incomplete event, which is not an error.
    if (!is_parsed && !is_at_end) {
      throw TraceError("it is not JSON at byte " + std::to_string(failed_at_));
    }
    trace_.is_cut_off = trace_.is_cut_off || !is_parsed;
  }

 private:
  [[noreturn]] static void refuse() {
    throw TraceError(
        "it is not a timeline of ddprun: expected a file that `ddprun --timeline` or ddp::Timeline has written (traces "
        "of PyTorch's profiler and of Horovod cannot be read)");
  }
  // Only the first levels of nesting are significant; deeper ones are only counted.
  void push() {
    ++depth_;
    if (depth_ > 1 && path_.size() < kMaxPath && depth_ == path_.size() + 2) path_.push_back(last_);
    is_at_top_ = depth_ == 1;
  }
  void pop() {
    if (depth_ > 1 && depth_ == path_.size() + 1) path_.pop_back();
    --depth_;
    is_at_top_ = depth_ == 1;
  }
  bool is_in(std::string_view key) const { return path_.size() == 1 && depth_ == 2 && path_.front() == key; }
  bool is_in_event() const { return path_.size() >= 2 && depth_ <= 4 && path_.front() == "traceEvents"; }

  bool on_number(double value) {
    const bool is_total =
        path_.size() == 2 && depth_ == 3 && path_[0] == "ddprun" && value > 0 && value < kMaxExactInteger;
    if (is_total && path_[1] == "lost_events") trace_.lost += static_cast<std::uint64_t>(value);
    if (is_total && path_[1] == "clock_error_us")
      trace_.clock_error = std::max<std::int64_t>(trace_.clock_error, std::llround(value) * 1000);
    if (is_in_event()) path_.size() == 3 ? on_argument(value) : on_field(value);
    return true;
  }
  static bool is_whole(double value) { return value >= 0 && value < kMaxExactInteger; }
  void on_argument(double value) {
    if ((last_ == "step" || last_ == "index" || last_ == "number") && is_whole(value))
      event_.number = std::llround(value);
    if (last_ == "bytes" && is_whole(value)) event_.bytes = std::llround(value);
    if (last_ == "started") event_.started = value;
  }
  void on_field(double value) {
    if (last_ == "ts") event_.time = value;
    if (last_ == "dur") event_.duration = value;
    if (last_ == "pid" && value >= 0 && value < std::numeric_limits<int>::max()) event_.rank = std::llround(value);
    if (last_ == "tid" && is_whole(value)) event_.lane = static_cast<std::uint64_t>(value);
  }

  std::uint32_t index_of(const std::string& name) {
    const auto [found, is_new] = indices_.try_emplace(name, static_cast<std::uint32_t>(trace_.names.size()));
    if (is_new) {
      if (trace_.names.size() >= limits_.names) throw TraceError("it has too many different names");
      trace_.names.push_back(name);
    }
    return found->second;
  }

  std::int64_t nanoseconds(const char* what, double microseconds, double least = -kMaxMicroseconds) const {
    if (!(least <= microseconds && microseconds < kMaxMicroseconds)) {
      throw TraceError("the " + std::string(what) + " of event " + std::to_string(events_seen_) +
                       " in traceEvents is not a valid time: " + number_text(microseconds));
    }
    return std::llround(microseconds * 1000);
  }

  void take() {
    ++events_seen_;
    if (event_.rank < 0) return;
    const int rank = static_cast<int>(event_.rank);
    if (event_.form == "M") {
      if (event_.name != "process_name") return;
      trace_.ranks[rank] = event_.arg_name;
      restarts_[rank] = static_cast<std::uint16_t>(restart_of(event_.arg_name));
      return;
    }
    ++trace_.events;
    if (event_.form != "X" || !event_.time) return;
    const auto activity = activity_named(event_.category);
    if (!activity) return;
    if (trace_.slices.size() >= limits_.events) {
      throw TraceError("it has more than " + std::to_string(limits_.events) +
                       " events; record fewer steps (--timeline_steps)");
    }
    trace_.ranks.try_emplace(rank, "rank " + std::to_string(rank));
    const std::int64_t begin = nanoseconds("ts", *event_.time);
    Slice slice{.rank = rank,
                .activity = *activity,
                .restart = restarts_[rank],
                .lane = event_.lane,
                .begin = begin,
                .end = begin + nanoseconds("dur", event_.duration, /*least=*/0),
                .name = index_of(event_.name),
                .number = event_.number,
                .bytes = event_.bytes,
                .is_unfinished = event_.is_unfinished};
    if (event_.started) slice.started = nanoseconds("started", *event_.started);
    trace_.slices.push_back(slice);
  }

  static constexpr std::size_t kMaxPath = 3;
  Trace& trace_;
  const ReadLimits& limits_;
  std::size_t depth_ = 0;
  bool is_at_top_ = false;
  std::vector<std::string> path_;
  std::string last_;
  bool is_ours_ = false;
  Event event_;
  std::unordered_map<std::string, std::uint32_t> indices_;
  std::unordered_map<int, std::uint16_t> restarts_;  // for each rank, the restart that its current events belong to
  std::size_t failed_at_ = 0;
  std::size_t events_seen_ = 0;  // of all kinds
};

}  // namespace

std::string_view name_of(Activity activity) {
  return kNames[static_cast<std::size_t>(activity) % kActivities];
}

std::optional<Activity> activity_named(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Activity>(i);
  }
  return std::nullopt;
}

std::ifstream open_trace(const std::string& file) {
  struct stat status {};
  const bool exists = ::stat(file.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) errno = EISDIR;  // the error that reading a directory would give
  std::ifstream stream;
  if (exists && !S_ISDIR(status.st_mode)) stream.open(file, std::ios::binary);
  if (!stream.is_open()) throw TraceError(file + ": it cannot be read: " + std::strerror(errno));
  if (stream.peek() == std::char_traits<char>::eof()) throw TraceError(file + ": it is empty");
  return stream;
}

int restart_of(std::string_view rank_name) {
  constexpr std::string_view kRestart = ", restart ";
  const std::size_t at = rank_name.rfind(kRestart);
  if (at == std::string_view::npos) return 0;
  const std::string_view number = rank_name.substr(at + kRestart.size());
  int restart = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), restart);
  const bool is_number = error == std::errc() && end == number.data() + number.size();
  return is_number ? std::clamp(restart, 0, kMaxTraceRestarts) : 0;
}

Trace read_trace(std::istream& file, const ReadLimits& limits) {
  Trace trace;
  Handler handler(trace, limits);
  CheckedBytes bytes(file, limits.text);
  std::istream checked(&bytes);
  checked.exceptions(std::ios::badbit);
  const bool is_parsed =
      json::sax_parse(std::istreambuf_iterator<char>(checked), std::istreambuf_iterator<char>(), &handler);
  checked.exceptions(std::ios::goodbit);
  handler.finish(is_parsed, is_parsed || checked.peek() == std::char_traits<char>::eof());
  return trace;
}

}  // namespace ddp::timelines
