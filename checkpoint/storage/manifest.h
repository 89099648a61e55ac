// MANIFEST.json: what a checkpoint folder holds. Written last; a folder without a valid one was never committed. The
// text is canonical and ends with its own checksum, so that no change of it goes unnoticed. Parsing and formatting
// only; no LibTorch and no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "checkpoint/storage/durable_file.h"

namespace ddp::storage {

/// Whether a checkpoint may have a file of this name: [A-Za-z0-9._-] without a leading dot, at most 255 bytes.
bool is_file_name(std::string_view name);

inline constexpr const char* kManifestName = "MANIFEST.json";
/// Longest manifest that is read: some 10,000 files.
inline constexpr uint64_t kMaxManifestBytes = 1 << 20;
/// Most ranks that a manifest may name, as in Python.
inline constexpr int kMaxWorldSize = 1 << 20;

struct Manifest {
  int64_t step = 0;
  /// In which order a directory's checkpoints were saved: the first is 1, the newest has the largest. 0 in those of
  /// version 1 of the format, which did not number them.
  int64_t sequence = 0;
  int world_size = 1;
  std::map<std::string, double> metrics{};  ///< what keep_best compares; version 1 made NaN of infinities
  std::map<std::string, FileRecord> files{};
};

/// Thrown for text that is not a manifest; the message says why, not in which file.
class ManifestError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// In version 2 of the format, or in version 1 without a sequence. Throws std::invalid_argument for a negative step or
/// sequence, a world size below 1 or above kMaxWorldSize, a file name other than [A-Za-z0-9._-] without a leading dot,
/// a metric's name with quotes, backslashes or control characters, and for more bytes than are read, kMaxManifestBytes.
std::string format_manifest(const Manifest& manifest);

/// Throws std::invalid_argument for what is read, since earlier versions wrote it, but not written any more: names of
/// metrics that are not UTF-8, which JSON cannot hold.
void check_new_manifest(const Manifest& manifest);

/// Throws ManifestError unless `text` is exactly what format_manifest() makes.
Manifest parse_manifest(std::string_view text);

}  // namespace ddp::storage
