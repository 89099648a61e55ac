// TensorBoard's event messages as bytes. Field numbers are those of its event.proto and summary.proto.
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

/// Buckets hold the values from the limit of the bucket before (inclusive) to their own limit (exclusive).
struct Histogram {
  double min = 0;
  double max = 0;
  double num = 0;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> limits{};  ///< right limit of each bucket, rising
  std::vector<double>
      counts{};  ///< as many as limits; the first and the last non-empty bucket are kept, and one before
};

/// Buckets that grow by 10 % from 1e-12 to 1e20 on both sides of 0, which is what torch.utils.tensorboard does by
/// default. NaN and infinite values are left out; values beyond the outermost limits count in the outermost buckets.
/// Without any finite value everything is 0 and there is one empty bucket.
Histogram make_histogram(std::span<const float> values);

Histogram make_histogram(std::span<const double> values);

Histogram make_histogram(std::span<const int64_t> values);

/// When something was recorded.
struct EventTime {
  double wall_time = 0;  ///< seconds since 1970
  int64_t step = 0;      ///< the horizontal axis of most charts
};

/// The first event of every file.
std::string encode_file_version(double wall_time);
/// Makes readers drop what other files of the folder hold for this step and later ones.
std::string encode_session_start(const EventTime& time);

std::string encode_scalar(const EventTime& time, std::string_view tag, double value);
std::string encode_histogram(const EventTime& time, std::string_view tag, const Histogram& histogram);
std::string encode_image(const EventTime& time, std::string_view tag, const Bitmap& bitmap);
/// Markdown, under `<tag>/text_summary` as torch.utils.tensorboard does.
std::string encode_text(const EventTime& time, std::string_view tag, std::string_view text);
/// What the HParams page lists for this run: its parameters, and the tags of the scalars that are its metrics.
std::string encode_hparams(double wall_time, const std::map<std::string, HyperParameter>& parameters,
                           const std::map<std::string, double>& metrics);

}  // namespace ddp
