#include "monitor/event.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/utf8.h"
#include "monitor/wire/protobuf.h"

namespace ddp {
namespace {

std::vector<double> default_limits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  std::vector<double> limits;
  for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) limits.push_back(-*limit);
  limits.push_back(0);
  limits.insert(limits.end(), positive.begin(), positive.end());
  return limits;
}

/// Removes the empty buckets on both sides, but keeps one on the left, because its limit is the beginning of the first
/// nonempty bucket.
void keep_occupied(Histogram& histogram, const std::vector<double>& limits, const std::vector<double>& counts) {
  const auto occupied = [](double count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), occupied) - counts.begin();
  const auto end = std::find_if(counts.rbegin(), counts.rend(), occupied).base() - counts.begin();
  histogram.limits.assign(limits.begin() + first, limits.begin() + end + 1);
  histogram.counts.assign(1, 0.0);
  histogram.counts.insert(histogram.counts.end(), counts.begin() + first, counts.begin() + end);
}

template <typename Value>
Histogram make(std::span<const Value> values) {
  const std::vector<double> limits = default_limits();
  std::vector<double> counts(limits.size() - 1, 0.0);
  Histogram histogram{.min = std::numeric_limits<double>::infinity(), .max = -std::numeric_limits<double>::infinity()};
  for (const Value given : values) {
    const auto value = static_cast<double>(given);
    if (!std::isfinite(value)) continue;
    const auto above = std::upper_bound(limits.begin(), limits.end(), value) - limits.begin();
    ++counts[static_cast<size_t>(std::clamp<std::ptrdiff_t>(above - 1, 0, std::ssize(counts) - 1))];
    histogram.min = std::min(histogram.min, value);
    histogram.max = std::max(histogram.max, value);
    histogram.num += 1;
    histogram.sum += value;
    histogram.sum_squares += value * value;
  }
  if (histogram.num == 0) return {.limits = {0.0}, .counts = {0.0}};
  keep_occupied(histogram, limits, counts);
  return histogram;
}

using wire::MessageWriter;

MessageWriter event_at(const EventTime& time) {
  MessageWriter event;
  event.real(1, time.wall_time);
  if (time.step != 0) event.integer(2, time.step);
  return event;
}

std::string summary_event(const EventTime& time, const MessageWriter& value) {
  MessageWriter summary;
  summary.bytes(1, value.str());
  return event_at(time).bytes(5, summary.str()).str();
}

MessageWriter tagged(std::string_view tag) {
  MessageWriter value;
  value.bytes(1, detail::valid_utf8(tag));
  return value;
}

std::string plugin_metadata(std::string_view plugin, std::string_view content) {
  MessageWriter data;
  data.bytes(1, plugin);
  if (!content.empty()) data.bytes(2, content);
  return MessageWriter().bytes(1, data.str()).str();
}

/// Encodes a google.protobuf.Value.
std::string dynamic_value(const HyperParameter& parameter) {
  MessageWriter value;
  if (const auto* flag = std::get_if<bool>(&parameter)) {
    value.integer(4, *flag ? 1 : 0);
  } else if (const auto* whole = std::get_if<int64_t>(&parameter)) {
    value.real(2, static_cast<double>(*whole));
  } else if (const auto* number = std::get_if<double>(&parameter)) {
    value.real(2, *number);
  } else {
    value.bytes(3, detail::valid_utf8(std::get<std::string>(parameter)));
  }
  return value.str();
}

int64_t data_type(const HyperParameter& parameter) {
  enum : int64_t { kString = 1, kBool = 2, kFloat64 = 3 };
  if (std::holds_alternative<bool>(parameter)) return kBool;
  return std::holds_alternative<std::string>(parameter) ? kString : kFloat64;
}

std::string experiment(const std::map<std::string, HyperParameter>& parameters,
                       const std::map<std::string, double>& metrics) {
  MessageWriter message;
  for (const auto& [name, parameter] : parameters) {
    MessageWriter info;
    info.bytes(1, detail::valid_utf8(name)).integer(4, data_type(parameter));
    message.bytes(4, info.str());
  }
  for (const auto& [tag, unused] : metrics) {
    const std::string name = MessageWriter().bytes(2, detail::valid_utf8(tag)).str();
    message.bytes(5, MessageWriter().bytes(1, name).str());
  }
  return message.str();
}

std::string session_start_info(double wall_time, const std::map<std::string, HyperParameter>& parameters) {
  MessageWriter message;
  for (const auto& [name, parameter] : parameters) {
    MessageWriter entry;  // a map is encoded as repeated pairs
    entry.bytes(1, detail::valid_utf8(name)).bytes(2, dynamic_value(parameter));
    message.bytes(1, entry.str());
  }
  return message.real(5, wall_time).str();
}

}  // namespace

Histogram make_histogram(std::span<const float> values) {
  return make(values);
}

Histogram make_histogram(std::span<const double> values) {
  return make(values);
}

Histogram make_histogram(std::span<const int64_t> values) {
  return make(values);
}

std::string encode_file_version(double wall_time) {
  return event_at({.wall_time = wall_time}).bytes(3, "brain.Event:2").str();
}

std::string encode_session_start(const EventTime& time) {
  constexpr int64_t kStart = 1;
  return event_at(time).bytes(7, MessageWriter().integer(1, kStart).str()).str();
}

std::string encode_scalar(const EventTime& time, std::string_view tag, double value) {
  return summary_event(time, tagged(tag).real32(2, static_cast<float>(value)));
}

std::string encode_histogram(const EventTime& time, std::string_view tag, const Histogram& histogram) {
  MessageWriter message;
  message.real(1, histogram.min).real(2, histogram.max).real(3, histogram.num).real(4, histogram.sum);
  message.real(5, histogram.sum_squares).packed(6, histogram.limits).packed(7, histogram.counts);
  return summary_event(time, tagged(tag).bytes(5, message.str()));
}

std::string encode_image(const EventTime& time, std::string_view tag, const Bitmap& bitmap) {
  MessageWriter image;
  image.integer(1, bitmap.height).integer(2, bitmap.width).integer(3, bitmap.channels).bytes(4, encode_png(bitmap));
  return summary_event(time, tagged(tag).bytes(4, image.str()));
}

std::string encode_text(const EventTime& time, std::string_view tag, std::string_view text) {
  constexpr int64_t kStringType = 7;
  const std::string one_element = MessageWriter().bytes(2, MessageWriter().integer(1, 1).str()).str();
  MessageWriter tensor;
  tensor.integer(1, kStringType).bytes(2, one_element).bytes(8, detail::valid_utf8(text));
  MessageWriter value = tagged(std::string(tag) + "/text_summary");
  return summary_event(time, value.bytes(8, tensor.str()).bytes(9, plugin_metadata("text", "")));
}

std::string encode_hparams(double wall_time, const std::map<std::string, HyperParameter>& parameters,
                           const std::map<std::string, double>& metrics) {
  constexpr int64_t kSuccess = 1;
  // The fields of the oneof in HParamsPluginData: experiment 2, session_start_info 3, session_end_info 4.
  MessageWriter summary;
  const auto add = [&](std::string_view tag, uint32_t field, const std::string& message) {
    const std::string content = MessageWriter().bytes(field, message).str();
    summary.bytes(1, tagged(tag).bytes(9, plugin_metadata("hparams", content)).str());
  };
  add("_hparams_/experiment", 2, experiment(parameters, metrics));
  add("_hparams_/session_start_info", 3, session_start_info(wall_time, parameters));
  add("_hparams_/session_end_info", 4, MessageWriter().integer(1, kSuccess).real(2, wall_time).str());
  return event_at({.wall_time = wall_time}).bytes(5, summary.str()).str();
}

}  // namespace ddp
