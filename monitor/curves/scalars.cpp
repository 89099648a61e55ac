#include "monitor/curves/scalars.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "monitor/wire/protobuf.h"
#include "monitor/wire/record.h"

namespace ddp::curves {
namespace {

namespace fs = std::filesystem;

using wire::MessageReader;
using wire::WireType;

double float_of(uint64_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits));
}

double double_of(uint64_t bits) {
  return std::bit_cast<double>(bits);
}

double bfloat16_of(uint64_t bits) {
  return float_of(bits << 16);
}

double half_of(uint64_t bits) {
  const auto exponent = static_cast<int>(bits >> 10 & 0x1F);
  const auto fraction = static_cast<double>(bits & 0x3FF);
  double size = 0;
  if (exponent == 0x1F) {
    size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) == 0 ? size : -size;
}

template <typename Whole>
double whole_of(uint64_t bits) {
  return static_cast<double>(static_cast<Whole>(bits));
}

struct ElementType {
  uint64_t dtype;   // a value of TensorFlow's enum DataType
  uint32_t field;   // the field of TensorProto that holds the elements if they are not in tensor_content
  size_t size;      // bytes per element in tensor_content
  bool is_integer;  // whether the elements in `field` are varints
  double (*number)(uint64_t bits);
};

constexpr ElementType kElementTypes[] = {
    {1, 5, 4, false, float_of},           {2, 6, 8, false, double_of},        {3, 7, 4, true, whole_of<int32_t>},
    {4, 7, 1, true, whole_of<uint8_t>},   {5, 7, 2, true, whole_of<int16_t>}, {6, 7, 1, true, whole_of<int8_t>},
    {9, 10, 8, true, whole_of<int64_t>},  {10, 11, 1, true, whole_of<bool>},  {14, 13, 2, true, bfloat16_of},
    {17, 7, 2, true, whole_of<uint16_t>}, {19, 13, 2, true, half_of},         {22, 16, 4, true, whole_of<uint32_t>},
    {23, 17, 8, true, whole_of<uint64_t>}};

uint64_t little_endian_of(std::string_view bytes) {
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes.size(); ++i) bits |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return bits;
}

/// Returns the value if `bytes` are exactly one varint.
std::optional<uint64_t> single_varint(std::string_view bytes) {
  constexpr size_t kMaxBytes = 10;
  if (bytes.empty() || bytes.size() > kMaxBytes) return std::nullopt;
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (((byte & 0x80U) == 0) != (i + 1 == bytes.size())) return std::nullopt;
    bits |= uint64_t{byte & 0x7FU} << (7 * i);
  }
  return bits;
}

/// Returns the value if the packed form of a repeated field has exactly one element.
std::optional<uint64_t> packed_element(const ElementType& type, std::string_view bytes) {
  if (type.is_integer) return single_varint(bytes);
  return bytes.size() == type.size ? std::optional(little_endian_of(bytes)) : std::nullopt;
}

uint64_t dtype_of(std::string_view tensor) {
  uint64_t dtype = 0;
  MessageReader reader(tensor);
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->type == WireType::kVarint) dtype = field->integer;
  }
  return dtype;
}

/// Returns the number in a TensorProto with one element of a real dtype: float, double, half, bfloat16, bool or an
/// integer dtype. Returns nothing for any other tensor. Throws std::runtime_error if the bytes are not a message.
/// Reference: TensorFlow's tensor.proto and types.proto.
std::optional<double> scalar_of_tensor(std::string_view tensor) {
  const uint64_t dtype = dtype_of(tensor);
  const auto* const type =
      std::ranges::find_if(kElementTypes, [&](const ElementType& each) { return each.dtype == dtype; });
  if (type == std::end(kElementTypes)) return std::nullopt;
  constexpr uint32_t kContent = 4;
  std::optional<uint64_t> bits;
  int fields = 0;  // number of fields with elements; if there are several, there are several elements
  MessageReader reader(tensor);
  while (const auto field = reader.next()) {
    if (field->number == kContent && field->type == WireType::kBytes && !field->bytes.empty()) {
      bits = field->bytes.size() == type->size ? std::optional(little_endian_of(field->bytes)) : std::nullopt;
      ++fields;
    } else if (field->number == type->field) {
      bits = field->type == WireType::kBytes ? packed_element(*type, field->bytes) : std::optional(field->integer);
      ++fields;
    }
  }
  return fields == 1 && bits ? std::optional(type->number(*bits)) : std::nullopt;
}

using wire::MessageReader;
using wire::WireType;

constexpr std::string_view kHyperParameterPlugin = "hparams";

/// The plugin that a summary value was written for, from its SummaryMetadata.
struct PluginData {
  std::string_view plugin{};
  std::string_view content{};
};

PluginData plugin_data(std::string_view metadata) {
  PluginData data;
  MessageReader reader(metadata);
  while (const auto field = reader.next()) {
    if (field->number != 1 || field->type != WireType::kBytes) continue;
    MessageReader parts(field->bytes);
    while (const auto part = parts.next()) {
      if (part->number == 1) data.plugin = part->bytes;
      if (part->number == 2) data.content = part->bytes;
    }
  }
  return data;
}

/// Calls `use` with the content of each field that has this number and holds bytes.
template <typename Use>
void for_each_part(std::string_view message, uint32_t number, Use use) {
  MessageReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number == number && field->type == WireType::kBytes) use(field->bytes);
  }
}

/// Adds the tags that a HParamsPluginData lists as metrics: experiment 2, metric_infos 5, name 1, tag 2.
void add_metrics(std::string_view content, std::set<std::string>& metrics) try {
  for_each_part(content, 2, [&](std::string_view experiment) {
    for_each_part(experiment, 5, [&](std::string_view metric) {
      for_each_part(metric, 1, [&](std::string_view name) {
        for_each_part(name, 2, [&](std::string_view tag) { metrics.emplace(tag); });
      });
    });
  });
} catch (const std::runtime_error&) {
  // The data were written by another program in a different format. The curves do not need them.
}

void add_summary(std::string_view summary, Point point, Run& run) {
  MessageReader reader(summary);
  while (const auto field = reader.next()) {
    if (field->number != 1 || field->type != WireType::kBytes) continue;
    std::string_view tag;
    std::optional<double> value;
    PluginData data;
    MessageReader values(field->bytes);
    while (const auto part = values.next()) {
      if (part->number == 1) tag = part->bytes;
      if (part->number == 2 && part->type == WireType::kFixed32) value = part->as_float();
      if (part->number == 8 && part->type == WireType::kBytes) value = scalar_of_tensor(part->bytes);
      if (part->number == 9 && part->type == WireType::kBytes) data = plugin_data(part->bytes);
    }
    if (data.plugin == kHyperParameterPlugin) {  // if it has a tensor, the tensor has no meaning
      add_metrics(data.content, run.metrics);
      continue;
    }
    if (!value) continue;
    point.value = *value;
    run.curves[std::string(tag)].push_back(point);
  }
}

bool is_session_start(std::string_view session_log) {
  constexpr uint64_t kStart = 1;
  MessageReader reader(session_log);
  while (const auto field = reader.next()) {
    if (field->number == 1) return field->integer == kStart;
  }
  return false;
}

void read_file(const fs::path& file, Run& run, std::vector<std::string>& problems) {
  try {
    wire::RecordReader reader(file);
    while (const auto record = reader.next()) add_event(*record, run);
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    const bool names_file = what.find(file.string()) != std::string::npos;
    problems.push_back(names_file ? what : file.string().append(": ").append(what));
  }
}

bool is_event_file(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_regular_file(ignored) && entry.path().filename().string().find("tfevents") != std::string::npos;
}

/// Returns the event files in a folder and its subfolders. The files of one folder are sorted by name.
std::vector<fs::path> event_files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    if (is_event_file(*entries)) files.push_back(entries->path());
  }
  if (error) throw std::runtime_error(folder.string() + ": cannot be read: " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

void add_event(std::string_view event, Run& run) {
  Point point;
  std::string_view summary;
  bool restarts = false;
  MessageReader reader(event);
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->type == WireType::kFixed64) point.wall_time = field->as_double();
    if (field->number == 2 && field->type == WireType::kVarint) point.step = static_cast<int64_t>(field->integer);
    if (field->number == 5) summary = field->bytes;
    if (field->number == 7) restarts = is_session_start(field->bytes);
  }
  if (restarts) {
    for (auto& [tag, curve] : run.curves) {
      std::erase_if(curve, [&](const Point& earlier) { return earlier.step >= point.step; });
    }
  }
  add_summary(summary, point, run);
}

Runs read_runs(const fs::path& path) {
  Runs found;
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::status_known(status)) throw std::runtime_error(path.string() + ": cannot be examined: " + error.message());
  if (!fs::exists(status)) throw std::runtime_error(path.string() + ": no such file or folder");
  const bool is_folder = fs::is_directory(status);
  const auto files = is_folder ? event_files_below(path) : std::vector<fs::path>{path};
  if (files.empty()) throw std::runtime_error(path.string() + ": no event file (…tfevents…) in this folder");
  std::map<std::string, Run> runs;
  for (const fs::path& file : files) {
    const std::string name =
        is_folder ? file.parent_path().lexically_relative(path).string() : file.parent_path().filename().string();
    read_file(file, runs[name], found.problems);
  }
  for (auto& [name, run] : runs) {
    std::erase_if(run.curves, [](const auto& curve) { return curve.second.empty(); });
    run.name = name;
    found.metrics.merge(run.metrics);
    if (!run.curves.empty()) found.runs.push_back(std::move(run));
  }
  return found;
}

}  // namespace ddp::curves
