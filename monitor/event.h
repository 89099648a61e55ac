// Encodes TensorBoard's event messages. Field numbers are those of its event.proto and summary.proto.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ddprun/monitor/summary_values.h>

namespace ddp {

/// A bucket counts the values from the previous bucket's limit (inclusive) to its own limit (exclusive).
struct Histogram {
  double min = 0;
  double max = 0;
  double num = 0;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> limits{};  ///< the right limit of each bucket, ascending
  /// One count for each limit. The buckets from the first to the last nonempty one are kept, and one before them.
  std::vector<double> counts{};
};

/// The buckets grow by 10 % from 1e-12 to 1e20 on both sides of 0, which is the default of torch.utils.tensorboard. NaN
/// and infinite values are ignored. Values beyond the outermost limits are counted in the outermost buckets. Without
/// any finite value, all numbers are 0 and there is one empty bucket.
Histogram make_histogram(std::span<const float> values);

Histogram make_histogram(std::span<const double> values);

Histogram make_histogram(std::span<const int64_t> values);

/// The time at which something was recorded.
struct EventTime {
  double wall_time = 0;  ///< seconds since 1970
  int64_t step = 0;      ///< the horizontal axis of most charts
};

/// Encodes the first event of every file.
std::string encode_file_version(double wall_time);
/// Makes readers discard the data that other files of the folder contain for this step and later ones.
std::string encode_session_start(const EventTime& time);

std::string encode_scalar(const EventTime& time, std::string_view tag, double value);
std::string encode_histogram(const EventTime& time, std::string_view tag, const Histogram& histogram);
std::string encode_image(const EventTime& time, std::string_view tag, const Bitmap& bitmap);
/// Encodes Markdown text under the tag `<tag>/text_summary`, as torch.utils.tensorboard does.
std::string encode_text(const EventTime& time, std::string_view tag, std::string_view text);
/// Encodes this run's entry in the HParams page: its parameters, and the tags of the scalars that are its metrics.
std::string encode_hparams(double wall_time, const std::map<std::string, HyperParameter>& parameters,
                           const std::map<std::string, double>& metrics);

}  // namespace ddp
