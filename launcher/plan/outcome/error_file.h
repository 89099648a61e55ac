// The file in which a worker reports why it fails (TORCHELASTIC_ERROR_FILE): JSON as torch.distributed.elastic writes
// it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace launcher {

struct ErrorRecord {
  std::string message{};
  std::optional<double> time = std::nullopt;  // in seconds since 1970; often rounded to whole seconds
};

// Accepts {"message": {"message": ..., "extraInfo": {"timestamp": ...}}} and {"message": "...", "timestamp": ...}. If
// the file is not JSON, its text is the message. Nothing when there is no text. Pure.
std::optional<ErrorRecord> parse_error_record(std::string_view text);

// Reads a megabyte at most; nothing when the worker wrote no such file.
std::optional<ErrorRecord> read_error_file(const std::string& path);

}  // namespace launcher
