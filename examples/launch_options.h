// What both examples accept from launchers.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "comm/process_group.h"
#include "comm/rank_info.h"

namespace examples {

/// Old launchers pass the local rank as an argument, `--local_rank N` or `--local-rank=N`, beside RANK and WORLD_SIZE.
/// LOCAL_RANK, which today's launchers set, comes first.
class LocalRankOption {
 public:
  explicit LocalRankOption(CLI::App& app) {
    app.add_option("--local_rank,--local-rank", local_rank_, "Set by old launchers; LOCAL_RANK comes first")
        ->check(CLI::NonNegativeNumber);
  }

  ddp::RankInfo rank_info() const {
    const auto environment = ddp::process_environment();
    return ddp::rank_info_from_environment([&](const std::string& name) {
      auto value = environment(name);
      if (!value && name == "LOCAL_RANK" && local_rank_) value = std::to_string(*local_rank_);
      return value;
    });
  }

 private:
  std::optional<int> local_rank_;
};

}  // namespace examples
