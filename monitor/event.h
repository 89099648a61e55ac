// TensorBoard's event messages as bytes. Field numbers are those of its event.proto and summary.proto.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include <ddprun/monitor/summary_values.h>

#include "monitor/histogram.h"

namespace ddp {

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
