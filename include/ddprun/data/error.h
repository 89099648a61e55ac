// What every reader of files on disk throws.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace ddp {

/// A data file or folder cannot be used. what() is one line: `<path>: <expected, got, what to do>`.
class DataError : public std::runtime_error {
 public:
  DataError(std::filesystem::path path, const std::string& problem);

  /// The file or folder that is at fault.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ddp
