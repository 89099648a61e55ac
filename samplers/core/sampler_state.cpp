#include <nlohmann/json.hpp>

#include <stdexcept>

#include "ddprun/samplers/shard.h"

namespace ddp {

std::string to_json(const SamplerState& state) {
  return nlohmann::json{
      {"seed", state.seed}, {"epoch", state.epoch}, {"consumed", state.consumed}, {"length", state.length}}
      .dump();
}

SamplerState sampler_state_from_json(const std::string& text) {
  try {
    const auto state = nlohmann::json::parse(text);
    for (const auto* key : {"seed", "epoch", "consumed", "length"}) {
      if (!state.at(key).is_number_integer()) {
        throw std::invalid_argument(std::string("Sampler state: \"") + key + "\" is not an integer");
      }
    }
    return {.seed = state.at("seed").get<uint64_t>(),
            .epoch = state.at("epoch").get<int64_t>(),
            .consumed = state.at("consumed").get<int64_t>(),
            .length = state.at("length").get<int64_t>()};
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(std::string("this is not a sampler's state: ") + error.what());
  }
}

}  // namespace ddp
