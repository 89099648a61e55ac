#include "checkpoint/core/sampler_position.h"

#include <stdexcept>

#include "checkpoint/core/shallow_json.h"

namespace ddp {
namespace {

std::string described(const SamplerPosition& place, bool with_seed) {
  const bool is_stream = place.length < 0;
  const std::string samples = is_stream ? "" : " of " + std::to_string(place.length);
  const std::string where =
      is_stream && place.consumed < 0 ? "at the end" : "after " + std::to_string(place.consumed) + samples + " samples";
  return "in epoch " + std::to_string(place.epoch) + " " + where +
         (with_seed ? " (seed " + std::to_string(place.seed) + ")" : "");
}

}  // namespace

std::optional<SamplerPosition> sampler_position(const std::string& state) {
  try {
    const auto json = parse_shallow_json(state);
    for (const auto* key : {"seed", "epoch", "consumed", "length"}) {
      if (!json.at(key).is_number_integer()) return std::nullopt;
    }
    return SamplerPosition{.seed = json["seed"].get<uint64_t>(),
                           .epoch = json["epoch"].get<int64_t>(),
                           .consumed = json["consumed"].get<int64_t>(),
                           .length = json["length"].get<int64_t>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

std::string to_json(const SamplerPosition& place) {
  return nlohmann::json{
      {"seed", place.seed}, {"epoch", place.epoch}, {"consumed", place.consumed}, {"length", place.length}}
      .dump();
}

std::string different_positions(const std::vector<std::optional<SamplerPosition>>& places) {
  if (places.empty() || !places.front()) return "";
  const SamplerPosition& first = *places.front();
  const auto ranks = static_cast<int64_t>(places.size());
  const auto has_ended = [&](const SamplerPosition& place) {
    return place.length >= 0 && place.consumed > place.length - ranks;
  };
  std::string text;
  for (size_t rank = 1; rank < places.size(); ++rank) {
    if (!places[rank]) continue;
    const SamplerPosition& place = *places[rank];
    const bool is_same = place.seed == first.seed && place.epoch == first.epoch && place.length == first.length &&
                         (place.consumed == first.consumed || (has_ended(place) && has_ended(first)));
    if (is_same) continue;
    const bool with_seed = place.seed != first.seed;
    text += (text.empty() ? "on rank " : "; on rank ") + std::to_string(rank) + ": its sampler is " +
            described(place, with_seed) + ", but rank 0's is " + described(first, with_seed);
  }
  if (!text.empty()) {
    text +=
        "; save when all ranks have used the same number of batches of the same epoch (a sampler that differs between "
        "ranks belongs in .per_rank)";
  }
  return text;
}

}  // namespace ddp
