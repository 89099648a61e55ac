#include "base/timeline/trace_event.h"

#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace ddp::detail {
namespace {

// Formats nanoseconds as microseconds, the unit of the file format.
std::string microseconds(std::int64_t nanoseconds) {
  std::string text = nanoseconds < 0 ? "-" : "";
  const std::uint64_t size = nanoseconds < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(nanoseconds)
                                             : static_cast<std::uint64_t>(nanoseconds);
  const std::string rest = std::to_string(size % 1000);
  return text.append(std::to_string(size / 1000)).append(".").append(3 - rest.size(), '0').append(rest);
}

// Formats a number for JSON, which cannot represent NaN.
std::string number_text(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

class Line {
 public:
  explicit Line(std::string_view form) { text_.append("{\"ph\":\"").append(form).append("\""); }
  Line& text(std::string_view key, std::string_view value) { return raw(key, json_text(value)); }
  Line& raw(std::string_view key, std::string_view value) {
    text_.append(",\"").append(key).append("\":").append(value);
    return *this;
  }
  Line& place(int rank, std::uint64_t lane) {
    return raw("pid", std::to_string(rank)).raw("tid", std::to_string(lane));
  }
  Line& args(std::string_view content) {
    text_.append(",\"args\":{").append(content).append("}");
    return *this;
  }
  std::string finish() { return std::move(text_.append("}")); }

 private:
  std::string text_;
};

std::string args_of(const TraceEvent& event, std::int64_t base) {
  std::string text;
  const auto add = [&](std::string_view key, std::string_view value) {
    text.append(text.empty() ? "\"" : ",\"").append(key).append("\":").append(value);
  };
  if (event.number) {
    add(event.is_step ? "step" : event.kind == EventKind::kBucket ? "index" : "number", std::to_string(*event.number));
  }
  if (event.bytes) add("bytes", std::to_string(*event.bytes));
  if (event.started) add("started", microseconds(static_cast<std::int64_t>(*event.started) - base));
  if (event.is_unfinished) add("unfinished", "true");
  return text;
}

}  // namespace

std::string json_text(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string json = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (length == 0 || byte == 0) {
      json += "\\ufffd";
    } else if (byte == '"' || byte == '\\') {
      json.append("\\").append(1, text.front());
    } else if (byte < 0x20 || byte == 0x7f) {
      json.append("\\u00").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    } else {
      json.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return json.append("\"");
}

std::string trace_json(const TraceEvent& event, int rank, std::int64_t base) {
  const auto time = [&](std::uint64_t at) { return microseconds(static_cast<std::int64_t>(at) - base); };
  switch (event.form) {
    case TraceEvent::Form::kLaneName:
      return Line("M")
                 .place(rank, event.lane)
                 .text("name", "thread_name")
                 .args("\"name\":" + json_text(event.name))
                 .finish() +
             ",\n" +
             Line("M")
                 .place(rank, event.lane)
                 .text("name", "thread_sort_index")
                 .args("\"sort_index\":" + std::to_string(event.number.value_or(0)))
                 .finish();
    case TraceEvent::Form::kCounter:
      return Line("C")
          .raw("pid", std::to_string(rank))
          .raw("ts", time(event.begin))
          .text("name", event.name)
          .args("\"value\":" + number_text(event.value))
          .finish();
    case TraceEvent::Form::kInstant:
      return Line("i")
          .place(rank, event.lane)
          .raw("ts", time(event.begin))
          .text("s", "p")
          .text("name", event.name)
          .finish();
    case TraceEvent::Form::kSlice:
      break;
  }
  Line line("X");
  line.place(rank, event.lane)
      .raw("ts", time(event.begin))
      .raw("dur", microseconds(static_cast<std::int64_t>(event.end - event.begin)))
      .text("cat", event.is_step ? "step" : category_of(event.kind))
      .text("name", event.name);
  const std::string args = args_of(event, base);
  if (!args.empty()) line.args(args);
  return line.finish();
}

std::string rank_json(int rank, std::string_view name) {
  const std::string number = std::to_string(rank);
  return Line("M").raw("pid", number).text("name", "process_name").args("\"name\":" + json_text(name)).finish() +
         ",\n" +
         Line("M").raw("pid", number).text("name", "process_sort_index").args("\"sort_index\":" + number).finish();
}

}  // namespace ddp::detail
