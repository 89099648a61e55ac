#include "launcher/plan/log_layout.h"

namespace launcher {

std::string LogLayout::attempt_folder(int attempt) const {
  return log_folder + "/attempt_" + std::to_string(attempt);
}

std::string LogLayout::rank_folder(int attempt, const RankPlace& place) const {
  return attempt_folder(attempt) + "/" + std::to_string(place.local_rank);
}

std::string LogLayout::error_file(int attempt, const RankPlace& place) const {
  if (!log_folder.empty()) return rank_folder(attempt, place) + "/error.json";
  return error_folder + "/attempt_" + std::to_string(attempt) + "_rank_" + std::to_string(place.rank) + "_error.json";
}

std::string LogLayout::log_file(int attempt, const RankPlace& place, Stream stream) const {
  return rank_folder(attempt, place) + "/" + name_of(stream) + ".log";
}

std::string LogLayout::output_rank_folder(const RankPlace& place) const {
  const std::string highest = std::to_string(place.world_size - 1);
  std::string number = std::to_string(place.rank);
  if (number.size() < highest.size()) number.insert(0, highest.size() - number.size(), '0');
  return output_folder + "/rank." + number;
}

std::string LogLayout::output_file(const RankPlace& place, Stream stream) const {
  return output_rank_folder(place) + "/" + name_of(stream);
}

std::string LogLayout::filtered_file(int attempt, Stream stream) const {
  return attempt_folder(attempt) + "/filtered_" + name_of(stream) + ".log";
}

}  // namespace launcher
