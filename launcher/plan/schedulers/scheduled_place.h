// A node's place in its job as a scheduler's variables tell it, each value with what told it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace launcher {

template <typename Value>
struct Told {
  Value value{};
  std::string why{};  // "SLURM_NODEID=1", as it can be shown
};

struct ScheduledPlace {
  std::string system{};  // "Slurm"
  std::optional<Told<int>> nnodes = std::nullopt;
  std::optional<Told<int>> node_rank = std::nullopt;
  std::optional<Told<int>> nproc_per_node = std::nullopt;
  std::optional<Told<std::string>> master_addr = std::nullopt;
  std::optional<Told<std::uint16_t>> master_port = std::nullopt;
  std::optional<Told<std::string>> job_id = std::nullopt;              // equal on all nodes of the job
  std::optional<Told<std::chrono::seconds>> kill_wait = std::nullopt;  // from the scheduler's TERM to its KILL
  std::string obstacle{};  // why the variables tell no place though they should, and what to do; else empty
};

}  // namespace launcher
