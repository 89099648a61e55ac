// The paths of files that a job's ranks write, or that contain their output. Pure.
#pragma once

#include <string>

#include "launcher/plan/stream_selection.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

struct LogLayout {
  std::string error_folder{};   // for error files when there is no log folder
  std::string log_folder{};     // torchrun's layout: <log_dir>/<run_id>_<random>; empty: none
  std::string output_folder{};  // horovodrun's and mpirun's layout: a folder per rank; empty: none

  // <log_folder>/attempt_<n>
  std::string attempt_folder(int attempt) const { return log_folder + "/attempt_" + std::to_string(attempt); }
  // The folder of a rank's files in an attempt: <log_folder>/attempt_<n>/<local_rank>.
  std::string rank_folder(int attempt, const RankPlace& place) const {
    return attempt_folder(attempt) + "/" + std::to_string(place.local_rank);
  }
  // TORCHELASTIC_ERROR_FILE.
  std::string error_file(int attempt, const RankPlace& place) const {
    if (!log_folder.empty()) return rank_folder(attempt, place) + "/error.json";
    return error_folder + "/attempt_" + std::to_string(attempt) + "_rank_" + std::to_string(place.rank) + "_error.json";
  }
  // stdout.log or stderr.log in the rank's folder.
  std::string log_file(int attempt, const RankPlace& place, Stream stream) const {
    return rank_folder(attempt, place) + "/" + name_of(stream) + ".log";
  }
  // <output_folder>/rank.<rank>, with leading zeros up to the width of the highest rank.
  std::string output_rank_folder(const RankPlace& place) const {
    const std::string highest = std::to_string(place.world_size - 1);
    std::string number = std::to_string(place.rank);
    if (number.size() < highest.size()) number.insert(0, highest.size() - number.size(), '0');
    return output_folder + "/rank." + number;
  }
  // The file stdout or stderr in that folder, for all attempts.
  std::string output_file(const RankPlace& place, Stream stream) const {
    return output_rank_folder(place) + "/" + name_of(stream);
  }
  // The file filtered_stdout.log or filtered_stderr.log of the attempt.
  std::string filtered_file(int attempt, Stream stream) const {
    return attempt_folder(attempt) + "/filtered_" + name_of(stream) + ".log";
  }
};

}  // namespace launcher
