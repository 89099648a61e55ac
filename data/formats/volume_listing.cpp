#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <ddprun/data/byte_source.h>

#include "ddprun/data/file_formats.h"

namespace ddp {
namespace {

constexpr std::string_view kExtensions[] = {".nii.gz", ".nii"};
constexpr std::string_view kFirstChannel = "_0000";

// Returns the file name without its extension; nullopt if it is not a NIfTI file.
std::optional<std::string> stem_of(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  for (const std::string_view extension : kExtensions) {
    if (name.size() > extension.size() && name.ends_with(extension))
      return name.substr(0, name.size() - extension.size());
  }
  return std::nullopt;
}

std::optional<std::filesystem::path> labels_of(const std::string& stem, const std::filesystem::path& labels) {
  std::vector<std::string> names{stem};
  if (stem.ends_with(kFirstChannel)) names.push_back(stem.substr(0, stem.size() - kFirstChannel.size()));
  for (const std::string& name : names) {
    for (const std::string_view extension : kExtensions) {
      std::filesystem::path candidate = labels / (name + std::string(extension));
      std::error_code ignored;
      if (std::filesystem::is_regular_file(candidate, ignored)) return candidate;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<VolumePair> list_volume_pairs(const std::filesystem::path& images, const std::filesystem::path& labels) {
  std::vector<VolumePair> pairs;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(images, error), end; !error && entry != end; entry.increment(error)) {
    const auto stem = stem_of(entry->path());
    if (!stem) continue;
    const auto label = labels_of(*stem, labels);
    if (!label) {
      throw DataError(entry->path(), "no labels for it: expected " + (labels / (*stem + ".nii.gz")).string());
    }
    pairs.push_back({.image = entry->path(), .label = *label});
  }
  if (error) throw DataError(images, "cannot be read: " + error.message());
  if (pairs.empty()) throw DataError(images, "expected .nii or .nii.gz files in it, found none");
  std::ranges::sort(pairs, {}, &VolumePair::image);
  return pairs;
}

}  // namespace ddp
