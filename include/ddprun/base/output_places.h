// Where an option's output may go, for CLI11 (https://github.com/CLIUtils/CLI11), which the program has to bring. What
// cannot be written is found while nothing has been done yet: an earlier run's checkpoints still lie where they were.
#pragma once

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <string>
#include <system_error>

#include <ddprun/base/rank_info.h>

namespace ddp {

namespace detail {

/// Ranks of other hosts may have no such folder, and write nothing.
inline bool is_writing_rank() {
  try {
    return rank_info_from_environment().rank == 0;
  } catch (const std::exception&) {  // told where the job is joined
    return false;
  }
}

/// Why nothing can be made at `path`, which does not exist; empty where it can.
inline std::string why_not_made(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(path, error).lexically_normal();
  do folder = folder.parent_path();
  while (folder.has_relative_path() && !std::filesystem::exists(std::filesystem::status(folder, error)));
  if (!std::filesystem::is_directory(folder, error)) return folder.string() + " is no folder";
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? "" : "folder " + folder.string() + " cannot be written";
}

inline std::string why_not_written(const std::filesystem::path& path, bool is_folder) {
  if (path.empty() || !is_writing_rank()) return "";
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return why_not_made(path);
  if (std::filesystem::is_directory(status) != is_folder) return is_folder ? "it is no folder" : "it is a folder";
  return ::access(path.c_str(), is_folder ? W_OK | X_OK : W_OK) == 0 ? "" : "it cannot be written";
}

inline CLI::Validator output_validator(bool is_folder) {
  return {[=](std::string& text) {
            const std::string why = why_not_written(text, is_folder);
            return why.empty() ? "" : text + ": " + why;
          },
          "", "output"};
}

}  // namespace detail

/// Accepts a folder into which rank 0 can write, or that it can make, and no text at all.
inline CLI::Validator output_folder() {
  return detail::output_validator(/*is_folder=*/true);
}

/// Accepts what MetricsFile takes: a file that ends in .csv or .jsonl, which rank 0 can write or make; or no text.
inline CLI::Validator metrics_file() {
  const auto writable = detail::output_validator(/*is_folder=*/false);
  return {[writable](std::string& text) {
            const std::string extension = std::filesystem::path(text).extension().string();
            if (text.empty() || extension == ".csv" || extension == ".jsonl") return writable(text);
            return text + ": expected a file that ends in .csv or .jsonl";
          },
          "", "output"};
}

}  // namespace ddp
