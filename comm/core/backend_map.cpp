#include "comm/core/backend_map.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace ddp {
namespace {

// Backends for one rank are left out: they are chosen automatically.
std::string names_of(const BackendList& known) {
  std::string names;
  for (const BackendTraits* backend : known) {
    if (!backend->for_one_rank) names += "'" + backend->name + "', ";
  }
  return names.substr(0, names.size() - std::min<size_t>(names.size(), 2));
}

const BackendTraits* find(const std::string& name, const BackendList& known) {
  const auto found = std::ranges::find(known, name, &BackendTraits::name);
  return found == known.end() ? nullptr : *found;
}

class Parser {
 public:
  Parser(const std::string& text, const BackendList& known) : text_(text), known_(known) {}

  BackendMap parse() {
    if (const BackendTraits* all = find(text_, known_)) {
      return {.cpu = all->serves_cpu ? all : nullptr, .cuda = all->serves_cuda ? all : nullptr};
    }
    std::istringstream parts(text_);
    for (std::string part; std::getline(parts, part, ',');) read_part(part);
    if (map_ == BackendMap{}) fail("no backend is named");
    return map_;
  }

 private:
  void read_part(const std::string& part) {
    const auto colon = part.find(':');
    if (colon == std::string::npos && find(part, known_) != nullptr) {
      fail("in a list each backend follows its device, as in 'cuda:" + part + "'");
    }
    if (colon == std::string::npos) fail_unknown(part);
    const std::string device = part.substr(0, colon);
    const std::string name = part.substr(colon + 1);
    if (device != "cpu" && device != "cuda") fail("device '" + device + "' is neither cpu nor cuda");
    const BackendTraits* backend = find(name, known_);
    if (backend == nullptr) fail_unknown(name);
    if (backend->for_one_rank) fail(name + " is for a single process and cannot be part of a list");
    const bool is_cpu = device == "cpu";
    if (is_cpu && !backend->serves_cpu) fail(name + " supports CUDA tensors only");
    if (!is_cpu && !backend->serves_cuda) fail(name + " supports CPU tensors only");
    const BackendTraits*& slot = is_cpu ? map_.cpu : map_.cuda;
    if (slot != nullptr) fail("device '" + device + "' is named twice");
    slot = backend;
  }

  [[noreturn]] void fail_unknown(const std::string& name) const {
    // torch.distributed accepts this name, but only builds from source with an MPI compiler have the backend.
    if (name.find("mpi") != std::string::npos) {
      fail(
          "LibTorch's builds have no MPI backend (no ProcessGroupMPI inside). mpirun can still start the ranks: "
          "its variables are read, and gloo or nccl connects them");
    }
    fail("'" + name + "' is not a known backend");
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw std::invalid_argument("process group backend '" + text_ + "': " + why + ". Use " + names_of(known_) +
                                " or a list such as 'cpu:gloo,cuda:nccl'.");
  }

  const std::string& text_;
  const BackendList& known_;
  BackendMap map_{};
};

}  // namespace

std::string BackendMap::text() const {
  if (cpu == cuda) return cpu == nullptr ? "" : cpu->name;
  if (cpu == nullptr) return cuda->serves_cpu ? "cuda:" + cuda->name : cuda->name;
  if (cuda == nullptr) return cpu->serves_cuda ? "cpu:" + cpu->name : cpu->name;
  return "cpu:" + cpu->name + ",cuda:" + cuda->name;
}

const BackendTraits* BackendMap::with(bool BackendTraits::*trait) const {
  if (cuda != nullptr && cuda->*trait) return cuda;
  return cpu != nullptr && cpu->*trait ? cpu : nullptr;
}

std::chrono::milliseconds BackendMap::default_timeout() const {
  std::chrono::milliseconds longest{0};
  for (const BackendTraits* backend : {cpu, cuda}) {
    if (backend != nullptr) longest = std::max(longest, backend->default_timeout);
  }
  return longest;
}

BackendMap parse_backend_map(const std::string& text, const BackendList& known) {
  return Parser(text, known).parse();
}

std::string default_cpu_backend(const EnvironmentLookup& lookup) {
  const auto named = lookup("DDPRUN_CPU_BACKEND");
  return named && !named->empty() ? *named : "shm";
}

BackendMap choose_backends(const std::string& named, const RanksToConnect& ranks, const BackendList& known) {
  if (!named.empty()) return parse_backend_map(named, known);
  if (ranks.is_single_process) return parse_backend_map("local", known);
  const bool has_cuda = ranks.have_cuda_device_each();
  return parse_backend_map(has_cuda ? "cpu:" + ranks.on_cpu + ",cuda:nccl" : ranks.on_cpu, known);
}

bool can_connect(const BackendMap& backends, int world_size) {
  return world_size == 1 || backends.with(&BackendTraits::for_one_rank) == nullptr;
}

}  // namespace ddp
