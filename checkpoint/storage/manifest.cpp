#include "checkpoint/storage/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/crc32c.h"
#include "base/json_float.h"
#include "base/utf8.h"

namespace ddp::storage {
namespace {

constexpr int kVersion = 2;
constexpr int kVersionWithoutSequence = 1;
constexpr std::string_view kHead = "{\n  \"format\": \"ddprun-checkpoint\",\n  \"version\": ";
constexpr std::string_view kStep = ",\n  \"step\": ";
constexpr std::string_view kSequence = ",\n  \"sequence\": ";
constexpr std::string_view kWorldSize = ",\n  \"world_size\": ";
constexpr std::string_view kMetrics = ",\n  \"metrics\": {";
constexpr std::string_view kFiles = "},\n  \"files\": {";
constexpr std::string_view kItem = "\n    \"";
constexpr std::string_view kSize = "\": {\"size\": ";
constexpr std::string_view kCrc = ", \"crc32c\": \"";
constexpr std::string_view kOwnCrc = "},\n  \"crc32c\": \"";
constexpr std::string_view kTail = "\"\n}\n";
constexpr std::string_view kNamedFloat = "{\"__float__\": \"";
constexpr std::string_view kNamedFloatEnd = "\"}";

bool is_metric_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\' && c != 0x7f;
  });
}

// Replaces each byte that is not UTF-8 with a question mark.
std::string as_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const auto length = detail::utf8_length(text);
    valid += length > 0 ? text.substr(0, length) : "?";
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return valid;
}

std::string hexadecimal(uint32_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(8, '0');
  for (int i = 7; i >= 0; --i, value >>= 4) text[static_cast<size_t>(i)] = kDigits[value & 15];
  return text;
}

std::string number(double value, int version) {
  if (!std::isfinite(value)) {
    if (version == kVersionWithoutSequence) return "null";
    return std::string(kNamedFloat).append(non_finite_name(value)).append(kNamedFloatEnd);
  }
  char text[40];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

// Walks over the text; every mismatch throws.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool accept(std::string_view expected) {
    if (!text_.substr(position_).starts_with(expected)) return false;
    position_ += expected.size();
    return true;
  }

  void expect(std::string_view expected) {
    if (!accept(expected)) fail();
  }

  template <typename Number>
  Number read_number(int base = 10) {
    Number value{};
    const auto* begin = text_.data() + position_;
    const auto* end = text_.data() + text_.size();
    std::from_chars_result result{};
    if constexpr (std::is_floating_point_v<Number>) {
      result = std::from_chars(begin, end, value);
    } else {
      result = std::from_chars(begin, end, value, base);
    }
    if (result.ec != std::errc()) fail();
    position_ += static_cast<size_t>(result.ptr - begin);
    return value;
  }

  std::string_view read_until_quote() {
    const auto end = text_.find('"', position_);
    if (end == std::string_view::npos) fail();
    const auto piece = text_.substr(position_, end - position_);
    position_ = end;
    return piece;
  }

  size_t position() const { return position_; }

  [[noreturn]] void fail() const {
    throw ManifestError("it does not have a manifest's format (byte " + std::to_string(position_) + " of " +
                        std::to_string(text_.size()) + ")");
  }

 private:
  std::string_view text_;
  size_t position_ = 0;
};

double read_metric(Cursor& cursor) {
  if (cursor.accept("null")) return std::numeric_limits<double>::quiet_NaN();
  if (!cursor.accept(kNamedFloat)) return cursor.read_number<double>();
  const auto value = non_finite_value(cursor.read_until_quote());
  if (!value) cursor.fail();
  cursor.expect(kNamedFloatEnd);
  return *value;
}

}  // namespace

bool is_file_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 255 && name.front() != '.' && name != kManifestName &&
         std::all_of(name.begin(), name.end(), allowed);
}

void check_new_manifest(const Manifest& manifest) {
  for (const auto& [name, value] : manifest.metrics) {
    const auto valid = as_utf8(name);
    if (valid != name) throw std::invalid_argument("the metric '" + valid + "' has a name that is not UTF-8");
  }
}

std::string format_manifest(const Manifest& manifest) {
  if (manifest.step < 0) {
    throw std::invalid_argument("a checkpoint's step must not be negative, but is " + std::to_string(manifest.step));
  }
  if (manifest.sequence < 0) {
    throw std::invalid_argument("a checkpoint's sequence must not be negative, but is " +
                                std::to_string(manifest.sequence));
  }
  if (manifest.world_size < 1 || manifest.world_size > kMaxWorldSize) {
    throw std::invalid_argument("the world size must be from 1 to " + std::to_string(kMaxWorldSize) + ", but is " +
                                std::to_string(manifest.world_size));
  }
  std::string text(kHead);
  const int version = manifest.sequence > 0 ? kVersion : kVersionWithoutSequence;
  text += std::to_string(version);
  text.append(kStep).append(std::to_string(manifest.step));
  if (manifest.sequence > 0) text.append(kSequence).append(std::to_string(manifest.sequence));
  text.append(kWorldSize).append(std::to_string(manifest.world_size));
  text += kMetrics;
  const char* comma = "";
  for (const auto& [name, value] : manifest.metrics) {
    if (!is_metric_name(name)) {
      throw std::invalid_argument("the metric '" + name +
                                  "' needs a name of 1 to 255 characters without quotes, "
                                  "backslashes and control characters");
    }
    text.append(comma).append(kItem).append(name).append("\": ").append(number(value, version));
    comma = ",";
  }
  text += kFiles;
  comma = "";
  for (const auto& [name, record] : manifest.files) {
    if (!is_file_name(name)) throw std::invalid_argument("'" + name + "' cannot be the name of a checkpoint's file");
    text.append(comma).append(kItem).append(name).append(kSize).append(std::to_string(record.size));
    text.append(kCrc).append(hexadecimal(record.crc32c)).append("\"}");
    comma = ",";
  }
  text += kOwnCrc;
  const auto checksum = crc32c(text.data(), text.size());
  text.append(hexadecimal(checksum)).append(kTail);
  if (text.size() <= kMaxManifestBytes) return text;
  throw std::invalid_argument("the checkpoint's manifest would have " + std::to_string(text.size()) +
                              " bytes, more than the " + std::to_string(kMaxManifestBytes) +
                              " that are read: give it fewer metrics");
}

Manifest parse_manifest(std::string_view text) {
  if (text.size() > kMaxManifestBytes) {
    throw ManifestError("it has " + std::to_string(text.size()) + " bytes, more than the allowed " +
                        std::to_string(kMaxManifestBytes));
  }
  Cursor cursor(text);
  cursor.expect(kHead);
  const auto version = cursor.read_number<int>();
  if (version != kVersion && version != kVersionWithoutSequence) {
    throw ManifestError("it has version " + std::to_string(version) + ", but this program reads versions " +
                        std::to_string(kVersionWithoutSequence) + " and " + std::to_string(kVersion));
  }
  Manifest manifest;
  cursor.expect(kStep);
  manifest.step = cursor.read_number<int64_t>();
  if (version == kVersion) {
    cursor.expect(kSequence);
    manifest.sequence = cursor.read_number<int64_t>();
  }
  cursor.expect(kWorldSize);
  manifest.world_size = cursor.read_number<int>();
  cursor.expect(kMetrics);
  for (bool more = cursor.accept(kItem); more; more = cursor.accept(",") && (cursor.expect(kItem), true)) {
    const auto name = cursor.read_until_quote();
    cursor.expect("\": ");
    manifest.metrics.emplace(name, read_metric(cursor));
  }
  cursor.expect(kFiles);
  for (bool more = cursor.accept(kItem); more; more = cursor.accept(",") && (cursor.expect(kItem), true)) {
    const auto name = cursor.read_until_quote();
    FileRecord record;
    cursor.expect(kSize);
    record.size = cursor.read_number<uint64_t>();
    cursor.expect(kCrc);
    record.crc32c = cursor.read_number<uint32_t>(16);
    cursor.expect("\"}");
    manifest.files.emplace(name, record);
  }
  cursor.expect(kOwnCrc);
  const auto checksum = crc32c(text.data(), cursor.position());
  const auto stored = cursor.read_number<uint32_t>(16);
  if (stored != checksum) {
    throw ManifestError("it was changed: its checksum is " + hexadecimal(checksum) + ", but it says " +
                        hexadecimal(stored));
  }
  // Repeated or unsorted names, a leading zero, or text after the end would still have a correct checksum.
  try {
    if (format_manifest(manifest) == text) return manifest;
  } catch (const std::invalid_argument& error) {
    throw ManifestError(error.what());
  }
  throw ManifestError("it is not in the form that this program writes");
}

}  // namespace ddp::storage
