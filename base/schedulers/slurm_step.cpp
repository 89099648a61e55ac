#include "base/schedulers/slurm_step.h"

#include <charconv>
#include <stdexcept>

#include "base/schedulers/slurm_hosts.h"

namespace ddp::detail {
namespace {

// Steps from here on are no srun's: the batch script, the shell of salloc, ...
constexpr std::uint64_t kSpecialSteps = 0xfffffff0;
constexpr std::uint64_t kMostNodes = 1 << 16;

std::string require(const VariableLookup& lookup, const std::string& name) {
  const auto text = lookup(name);
  if (!text || text->empty()) {
    throw std::invalid_argument(name + " is not set although SLURM_STEP_ID is: pass all of srun's variables on");
  }
  return *text;
}

std::uint64_t number(const VariableLookup& lookup, const std::string& name, std::uint64_t lowest,
                     std::uint64_t highest) {
  const std::string text = require(lookup, name);
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < lowest || value > highest) {
    throw std::invalid_argument(name + "='" + text + "': expected a whole number from " + std::to_string(lowest) +
                                " to " + std::to_string(highest));
  }
  return value;
}

template <typename Read>
auto naming(const std::string& variable, const Read& read) {
  try {
    return read();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(variable + ": " + error.what());
  }
}

}  // namespace

std::uint16_t port_of_job(std::uint64_t number) {
  return static_cast<std::uint16_t>(15000 + number % 10000);
}

std::uint16_t port_of_job(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, so that every rank gets the same whatever built it
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return port_of_job(hash ^ (hash >> 32));
}

std::optional<SlurmStep> slurm_step(const VariableLookup& lookup) {
  if (!lookup("SLURM_STEP_ID")) return std::nullopt;
  const std::uint64_t step_number = number(lookup, "SLURM_STEP_ID", 0, UINT32_MAX);
  if (step_number >= kSpecialSteps) return std::nullopt;
  const std::uint64_t job = number(lookup, "SLURM_JOB_ID", 0, UINT32_MAX);
  const std::uint64_t restarts =
      lookup("SLURM_RESTART_COUNT") ? number(lookup, "SLURM_RESTART_COUNT", 0, UINT32_MAX) : 0;

  SlurmStep step;
  step.nodes = static_cast<int>(number(lookup, "SLURM_STEP_NUM_NODES", 1, kMostNodes));
  step.node = static_cast<int>(number(lookup, "SLURM_NODEID", 0, kMostNodes));
  if (step.node >= step.nodes) {
    throw std::invalid_argument("SLURM_NODEID=" + std::to_string(step.node) + " but SLURM_STEP_NUM_NODES=" +
                                std::to_string(step.nodes) + ": expected 0 <= SLURM_NODEID < SLURM_STEP_NUM_NODES");
  }
  const std::string tasks = require(lookup, "SLURM_STEP_TASKS_PER_NODE");
  step.tasks_on_node = naming("SLURM_STEP_TASKS_PER_NODE", [&] { return slurm_tasks_on(tasks, step.node); });
  const std::string list = require(lookup, "SLURM_STEP_NODELIST");
  step.first_host = naming("SLURM_STEP_NODELIST", [&] { return expand_slurm_hosts(list).front(); });
  // Jobs that run at once have near numbers, and so have their steps; a port of the run before may still be held.
  step.port = port_of_job(job + 97 * step_number + 389 * restarts);
  step.name = std::to_string(job) + "." + std::to_string(step_number);
  return step;
}

}  // namespace ddp::detail
